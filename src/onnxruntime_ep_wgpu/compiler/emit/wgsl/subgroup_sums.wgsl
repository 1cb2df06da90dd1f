// Sums of vectors over a workgroup of at least four invocations, SUMS of them with one barrier. Each subgroup stores its sums,
// and a reader adds those of all subgroups. Memory has no vec4, which two invocations could write at a time.
var<workgroup> kept: array<f32, SUMS * $WG>;  // by sum, subgroup and component

fn keep_sum(s: u32, v: vec4f) {
  let component = subgroup_sum4(v);
  if (subgroup_lane < 4u) { kept[s * $WG + subgroup_number * 4u + subgroup_lane] = component; }
}

fn kept_sum(s: u32) -> vec4f {
  var all = vec4f();
  for (var k = s * $WG; k < s * $WG + subgroup_count * 4u; k += 4u) {
    all += vec4f(kept[k], kept[k + 1u], kept[k + 2u], kept[k + 3u]);
  }
  return all;
}

