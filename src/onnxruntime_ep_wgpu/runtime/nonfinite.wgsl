// Counts NaN and infinities in a tensor of f32, or of f16, two to a word, and finds the first index.
// `size` is (elements, words, 1 for f16, unused).
@group(0) @binding(0) var<storage, read> words: array<u32>;
@group(0) @binding(1) var<storage, read_write> found: array<atomic<u32>, 4>;
@group(0) @binding(2) var<uniform> size: vec4<u32>;

// `magnitude`: the bits of element `index` without the sign. `infinity`: those of infinity; NaN is above.
fn look(index: u32, magnitude: u32, infinity: u32) {
  if (index >= size.x || magnitude < infinity) { return; }
  atomicMin(&found[0], index);
  if (magnitude == infinity) { atomicAdd(&found[1], 1u); } else { atomicAdd(&found[2], 1u); }
}

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3u, @builtin(num_workgroups) groups: vec3u) {
  for (var at = id.x; at < size.y; at += groups.x * 64u) {
    let word = words[at];
    if (size.z != 0u) {
      look(2u * at, word & 0x7fffu, 0x7c00u);
      look(2u * at + 1u, (word >> 16u) & 0x7fffu, 0x7c00u);
    } else {
      look(at, word & 0x7fffffffu, 0x7f800000u);
    }
  }
}
