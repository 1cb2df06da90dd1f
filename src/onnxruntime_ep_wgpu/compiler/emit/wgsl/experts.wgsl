// Products of rows with the weights of an expert each: y[r] = a[r / SHARE] times the matrix (n, k) of expert_at(r), plus its
// bias. A workgroup computes four columns of one row. Its PARTS invocations take turns along k, RUN elements at a time.
const RUN = 4u * $RUN4;

#let EXCHANGED SUBGROUPS and PARTS == INVOCATIONS
#if EXCHANGED
const SUMS = 1u;
#include subgroup_sums
#else
var<workgroup> parts: array<vec4f, $WG>;
#end

#include before_end

fn a_part(m: u32, k: u32) -> vec4f {
  if (k >= $k) { return vec4f(); }
  return before_end(a_at4(m, k), k);
}

fn kernel(w: u32, lane: u32) {
  let row = w / $tiles_n;
  let part = lane % $PARTS;
  let n = (w % $tiles_n * ($WG / $PARTS) + lane / $PARTS) * 4u;
  let expert = u32(clamp(expert_at(row), 0, i32($experts) - 1));
#for c 4
  let column#c = expert * $n + min(n + #cu, $n - 1u);
#end
  var sum = vec4f();
  for (var k = part * RUN; k < $k; k += $PARTS * RUN) {
#for c 4
    let b#c = b_run(column#c, k);
    var dot#c = 0f;
#end
#for j RUN4
    {
      let at = k + 4u * #ju;
      let left = a_part(row / $SHARE, at);
#for c 4
      dot#c += dot(left, before_end(b#c.v[#j], at));
#end
    }
#end
    sum += vec4f(dot0 * b0.scale, dot1 * b1.scale, dot2 * b2.scale, dot3 * b3.scale);
  }
#if EXCHANGED
  keep_sum(0u, sum);
#else
  parts[lane] = sum;
  for (var half = $PARTS / 2u; half > 0u; half /= 2u) {
    workgroupBarrier();
    if (part < half) { parts[lane] += parts[lane + half]; }
  }
#end
  workgroupBarrier();
  if (n < $n && part == 0u) {
#if EXCHANGED
    let total = kept_sum(0u);
#else
    let total = parts[lane];
#end
    for (var e = 0u; e < min(4u, $n - n); e++) { y_put(row, n + e, total[e] + bias_at(expert, n + e)); }
  }
}
