// Reductions over the lanes that share a row. `$`-free: kernels call these by name. Every kernel has a constant WORKGROUP, its
// number of invocations. The modulo of indices only serves the proofs of browsers.
var<workgroup> shared_f32: array<f32, WORKGROUP>;

// The sum over `lanes` (a power of two) neighbouring invocations. Every one of them receives the result. Requires uniform control
// flow.
fn lanes_sum(lane: u32, lanes: u32, value: f32) -> f32 {
  if (lanes == 1u) { return value; }
  workgroupBarrier();
  let at = lane % WORKGROUP;
  shared_f32[at] = value;
  for (var n = lanes / 2u; n > 0u; n /= 2u) {
    workgroupBarrier();
    if (lane % lanes < n) { shared_f32[at] += shared_f32[(at + n) % WORKGROUP]; }
  }
  workgroupBarrier();
  return shared_f32[lane / lanes * lanes];
}

fn lanes_max(lane: u32, lanes: u32, value: f32) -> f32 {
  if (lanes == 1u) { return value; }
  workgroupBarrier();
  let at = lane % WORKGROUP;
  shared_f32[at] = value;
  for (var n = lanes / 2u; n > 0u; n /= 2u) {
    workgroupBarrier();
    if (lane % lanes < n) { shared_f32[at] = max_f32(shared_f32[at], shared_f32[(at + n) % WORKGROUP]); }
  }
  workgroupBarrier();
  return shared_f32[lane / lanes * lanes];
}
