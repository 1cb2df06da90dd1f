// Reductions over all invocations of a workgroup, for adapters with subgroups. They work for any size of subgroups and any
// assignment of invocations: each subgroup stores its result at its number. `main` sets the private variables. Every invocation
// receives the result. All subgroups of a workgroup have equal numbers of invocations, the first lanes of a subgroup. The
// adapter's reported size of subgroups may be larger: for a small workgroup, or if its driver compiles for a smaller size.
// Requires uniform control flow.
var<private> subgroup_lane: u32;
var<private> subgroup_width: u32;  // the number of its invocations, a power of two
var<private> subgroup_leads: bool;  // one invocation of each subgroup
var<private> subgroup_number: u32;
var<private> subgroup_count: u32;
var<workgroup> shared_bits: array<u32, WORKGROUP>;

// If no builtin gives the number of this subgroup, counts the subgroups with an invocation before its first one.
fn count_subgroups(lane: u32) {
  let first = subgroupMin(lane);
  shared_bits[lane] = u32(first == lane);
  workgroupBarrier();
  var all = 0u;
  var before = 0u;
  for (var k = subgroup_lane; k < WORKGROUP; k += subgroup_width) {
    all += shared_bits[k];
    before += select(0u, shared_bits[k], k < first);
  }
  subgroup_count = subgroupAdd(all);
  subgroup_number = subgroupAdd(before);
}

fn keep_of_subgroup(bits: u32) {
  workgroupBarrier();
  if (subgroup_leads) { shared_bits[subgroup_number] = bits; }
  workgroupBarrier();
}

// Returns one component of the sum of vectors over a subgroup: the number of this invocation modulo 4. Two exchanges reduce four
// components to one, which is then reduced over the other lanes. Four separate sums would take 20 exchanges, and GPUs execute few
// at a time. Requires at least four invocations.
fn subgroup_sum4(v: vec4f) -> f32 {
  let odd = (subgroup_lane & 1u) != 0u;
  let pair = select(v.xz, v.yw, odd) + subgroupShuffleXor(select(v.yw, v.xz, odd), 1u);
  let high = (subgroup_lane & 2u) != 0u;
  var total = select(pair.x, pair.y, high) + subgroupShuffleXor(select(pair.y, pair.x, high), 2u);
  total += select(0f, subgroupShuffleXor(total, 4u), subgroup_width > 4u);
  total += select(0f, subgroupShuffleXor(total, 8u), subgroup_width > 8u);
  total += select(0f, subgroupShuffleXor(total, 16u), subgroup_width > 16u);
  total += select(0f, subgroupShuffleXor(total, 32u), subgroup_width > 32u);
  return total + select(0f, subgroupShuffleXor(total, 64u), subgroup_width > 64u);
}

fn workgroup_sum(lane: u32, value: f32) -> f32 {
  keep_of_subgroup(bitcast<u32>(subgroupAdd(value)));
  var total = 0f;
  for (var k = subgroup_lane; k < subgroup_count; k += subgroup_width) { total += bitcast<f32>(shared_bits[k]); }
  return subgroupAdd(total);
}

// The sum with the correct sign of zero, minus if all are minus zeros. A driver may begin with zero, and -0 + 0 is 0.
fn signed_sum_of_subgroup(value: f32) -> f32 {
  let sum = subgroupAdd(value);
  let sign = subgroupAnd(bitcast<u32>(value)) & 0x80000000u;
  return select(sum, bitcast<f32>(sign), sum == 0f);
}
fn workgroup_signed_sum(lane: u32, value: f32) -> f32 {
  keep_of_subgroup(bitcast<u32>(signed_sum_of_subgroup(value)));
  var total = minus_zero();  // changes no sum
  for (var k = subgroup_lane; k < subgroup_count; k += subgroup_width) { total += bitcast<f32>(shared_bits[k]); }
  return signed_sum_of_subgroup(total);
}

fn workgroup_least(lane: u32, value: u32) -> u32 {
  keep_of_subgroup(subgroupMin(value));
  var least = 0xffffffffu;
  for (var k = subgroup_lane; k < subgroup_count; k += subgroup_width) { least = min(least, shared_bits[k]); }
  return subgroupMin(least);
}

fn workgroup_most(lane: u32, value: u32) -> u32 {
  keep_of_subgroup(subgroupMax(value));
  var most = 0u;
  for (var k = subgroup_lane; k < subgroup_count; k += subgroup_width) { most = max(most, shared_bits[k]); }
  return subgroupMax(most);
}

// NaN propagates, as in min_f32 and max_f32.
fn workgroup_min(lane: u32, value: f32) -> f32 { return ranked_u32(workgroup_least(lane, low_rank_f32(value))); }
fn workgroup_max(lane: u32, value: f32) -> f32 { return ranked_u32(workgroup_most(lane, rank_f32(value))); }
