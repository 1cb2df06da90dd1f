// Matrix product y = a b for few rows and packed weights b (n, k): the time is that of reading b, which is read once for ROWS
// of them. An invocation sums four columns; PARTS neighbours share them and take turns along k, RUN elements at a time, which
// are whole words of b. What a run has as a common factor, the scale of its block, multiplies its sum once.
const RUN = 4u * $RUN4;

var<workgroup> parts: array<vec4<$y_t>, $ROWS * $WG>;

#include a_part

fn kernel(w: u32, lane: u32) {
  let batch = w / ($tiles_m * $tiles_n);
  let row = w / $tiles_n % $tiles_m * $ROWS;
  let part = lane % $PARTS;
  let n = (w % $tiles_n * ($WG / $PARTS) + lane / $PARTS) * 4u;
#for c 4
  let column#c = min(n + #cu, $n - 1u);
#end
#for r ROWS
  var sum#r = vec4<$y_t>();
  let row#r = min(row + #ru, $m - 1u);
#end
  let last = ($k - 1u) / RUN * RUN;
  for (var k0 = part * RUN; k0 < $k; k0 += $PARTS * RUN * $STEPS) {
#for s STEPS
#for c 4
    let b#s_#c = b_run(batch, column#c, min(k0 + #su * $PARTS * RUN, last));
#end
#end
#for s STEPS
    if (k0 + #su * $PARTS * RUN < $k) {
#for r ROWS
      {
#for c 4
        var dot#c = 0f;
#end
#for j RUN4
        {
          let left = a_part(batch, row#r, k0 + #su * $PARTS * RUN + 4u * #ju);
#for c 4
          dot#c += dot(left, b#s_#c.v[#j]);
#end
        }
#end
        sum#r += vec4<$y_t>(dot0 * b#s_0.scale, dot1 * b#s_1.scale, dot2 * b#s_2.scale, dot3 * b#s_3.scale);
      }
#end
    }
#end
  }
#if SUBGROUPS and PARTS == INVOCATIONS
  // As in workgroup_sum, for all rows between two barriers.
#for r ROWS
  sum#r = subgroupAdd(sum#r);
  parts[#ru * $WG + lane] = select(vec4<$y_t>(), sum#r, subgroupElect());
#end
  workgroupBarrier();
#for r ROWS
  sum#r = vec4<$y_t>();
  for (var p = subgroup_lane; p < $WG; p += subgroup_width) { sum#r += parts[#ru * $WG + p]; }
  sum#r = subgroupAdd(sum#r);
#end
  workgroupBarrier();
#for r ROWS
  parts[#ru * $WG + lane] = sum#r;
#end
#else
#for r ROWS
  parts[#ru * $WG + lane] = sum#r;
#end
  for (var half = $PARTS / 2u; half > 0u; half /= 2u) {
    workgroupBarrier();
    if (part < half) {
#for r ROWS
      parts[#ru * $WG + lane] += parts[#ru * $WG + lane + half];
#end
    }
  }
#end
  workgroupBarrier();
  if (n < $n) {
    for (var r = part; r < min($m - row, $ROWS); r += $PARTS) {
      let total = parts[r * $WG + lane - part];
#if FOURS
      y_put4(batch, row + r, n, total);
#else
      for (var e = 0u; e < min(4u, $n - n); e++) { y_put(batch, row + r, n + e, total[e]); }
#end
    }
  }
}
