// Reductions over all invocations of a workgroup, for adapters with subgroups. Whatever the size of these and whichever
// invocations are in one: a subgroup's result is in the slot of the invocation that it elects, all other slots change nothing.
// `main` sets the two numbers; every invocation gets the result. Uniform control flow.
var<private> subgroup_lane: u32;
var<private> subgroup_width: u32;
var<workgroup> shared_bits: array<u32, WORKGROUP>;

fn workgroup_sum(lane: u32, value: f32) -> f32 {
  let part = subgroupAdd(value);
  workgroupBarrier();
  shared_bits[lane] = select(0u, bitcast<u32>(part), subgroupElect());
  workgroupBarrier();
  var total = 0f;
  for (var k = subgroup_lane; k < WORKGROUP; k += subgroup_width) { total += bitcast<f32>(shared_bits[k]); }
  return subgroupAdd(total);
}

fn workgroup_least(lane: u32, value: u32) -> u32 {
  let part = subgroupMin(value);
  workgroupBarrier();
  shared_bits[lane] = select(0xffffffffu, part, subgroupElect());
  workgroupBarrier();
  var least = 0xffffffffu;
  for (var k = subgroup_lane; k < WORKGROUP; k += subgroup_width) { least = min(least, shared_bits[k]); }
  return subgroupMin(least);
}

fn workgroup_min(lane: u32, value: f32) -> f32 { return -workgroup_max(lane, -value); }

// NaN is what remains, as of max_f32: it is the highest in this order.
fn workgroup_max(lane: u32, value: f32) -> f32 {
  let part = subgroupMax(ordered_f32(value));
  workgroupBarrier();
  shared_bits[lane] = select(0u, part, subgroupElect());
  workgroupBarrier();
  var highest = 0u;
  for (var k = subgroup_lane; k < WORKGROUP; k += subgroup_width) { highest = max(highest, shared_bits[k]); }
  highest = subgroupMax(highest);
  return float_bits(select(~highest, highest ^ 0x80000000u, highest >= 0x80000000u));
}
