// Random bits, and numbers made of them. Only integers and exact products determine the bits and uniform numbers, so these are
// the same on every adapter. The last digits of a normal number may differ, like those of a logarithm.

// Four words from a counter and a key: Philox 4x32 with 10 rounds (Salmon and others, Parallel random numbers: as easy as 1, 2,
// 3, 2011).
fn philox(counter: vec4<u32>, key: vec2<u32>) -> vec4<u32> {
  var c = counter;
  var k = key;
  for (var round = 0u; round < 10u; round++) {
    let first = wide_mul(c.x, 0xd2511f53u);
    let second = wide_mul(c.z, 0xcd9e8d57u);
    c = vec4<u32>(second.y ^ c.y ^ k.x, second.x, first.y ^ c.w ^ k.y, first.x);
    k += vec2<u32>(0x9e3779b9u, 0xbb67ae85u);
  }
  return c;
}
// A number in [0, 1), a multiple of 2^-24.
fn unit_u32(word: u32) -> f32 { return f32(word >> 8u) * 5.9604645e-08f; }
// A number in (0, 1); small ones have all 32 bits.
fn open_unit_u32(word: u32) -> f32 {
  return select(unit_u32(word), max(f32(word), 0.5f) * 2.3283064e-10f, word < 0x1000000u);
}
// Standard normal numbers (Box and Muller, 1958). Two words give a radius and an angle, and these give two numbers; `which`
// selects one. The first two bits of the second word are the quadrant, 24 of the others the position in it.
fn normal_number(words: vec2<u32>, which: u32) -> f32 {
  let place = f32(i32((words.y & 0x3fffffffu) >> 6u) - 8388608i) * 9.362676e-08f;
  let quarter = (words.y >> 30u) + 1u - which;
  let v = select(sin_small(place), cos_small(place), (quarter & 1u) == 1u);
  return sqrt(-2f * log_f32(open_unit_u32(words.x))) * select(v, -v, (quarter & 2u) == 2u);
}
