// Matrix product y = a b for at most ROWS rows: the time is that of reading b, which is read once. A workgroup computes
// 4 * COLUMNS4 columns; its PARTS parts of invocations split k between them, four of k at a time, neighbours in the order in
// which b lies in memory. With TRANSPOSED that is along k, and b_at4(batch, n, k) loads four of k.
const PARTS = $WG / $COLUMNS4;

var<workgroup> parts: array<vec4<$y_t>, $WG>;
var<workgroup> totals: array<vec4<$y_t>, $ROWS * $COLUMNS4>;

#include a_part

// Row k + e of b from column n on; or column n + e from row k on. Zeros from the end of k on, whatever lies there.
fn b_part(batch: u32, k: u32, n: u32, e: u32) -> vec4<$y_t> {
  if ($TRANSPOSED) {
    if (k >= $k) { return vec4<$y_t>(); }
    return before_end(b_at4(batch, min(n + e, $n - 1u), k), k);
  }
  if (k + e >= $k) { return vec4<$y_t>(); }
  return b_at4(batch, k + e, n);
}

fn kernel(w: u32, lane: u32) {
  let batch = w / $tiles_n;
  let first = w % $tiles_n * (4u * $COLUMNS4);
  let column4 = select(lane % $COLUMNS4, lane / PARTS, $TRANSPOSED);
  let part = select(lane / $COLUMNS4, lane % PARTS, $TRANSPOSED);
  let column = min(first + column4 * 4u, ($n - 1u) / 4u * 4u);
#for r ROWS
  var sum#r = vec4<$y_t>();
  let row#r = min(#ru, $m - 1u);
#end
  for (var k0 = part * 4u; k0 < $k; k0 += PARTS * 4u * $STEPS) {
#for s STEPS
#for e 4
    let right#s_#e = b_part(batch, k0 + #su * PARTS * 4u, column, #eu);
#end
#end
#for s STEPS
#for r ROWS
    {
      let left = a_part(batch, row#r, k0 + #su * PARTS * 4u);
      if ($TRANSPOSED) {
        sum#r += vec4<$y_t>(dot(left, right#s_0), dot(left, right#s_1), dot(left, right#s_2), dot(left, right#s_3));
      } else {
        sum#r += left.x * right#s_0 + left.y * right#s_1 + left.z * right#s_2 + left.w * right#s_3;
      }
    }
#end
#end
  }
#if SUBGROUPS and COLUMNS4 == 1
  // As in workgroup_sum: all invocations share the columns.
#for r ROWS
  sum#r = subgroupAdd(sum#r);
  workgroupBarrier();
  parts[lane] = select(vec4<$y_t>(), sum#r, subgroupElect());
  workgroupBarrier();
  sum#r = vec4<$y_t>();
  for (var p = subgroup_lane; p < $WG; p += subgroup_width) { sum#r += parts[p]; }
  sum#r = subgroupAdd(sum#r);
  if (lane == 0u) { totals[#r] = sum#r; }
#end
#else
  let mine = column4 * PARTS + part;
#for r ROWS
  workgroupBarrier();
  parts[mine] = sum#r;
  for (var half = PARTS / 2u; half > 0u; half /= 2u) {
    workgroupBarrier();
    if (part < half) { parts[mine] += parts[mine + half]; }
  }
  if (part == 0u) { totals[#ru * $COLUMNS4 + column4] = parts[mine]; }
#end
#end
  workgroupBarrier();
  for (var e = lane; e < min($m, $ROWS) * $COLUMNS4; e += $WG) {
    let n = first + e % $COLUMNS4 * 4u;
    if (n < $n) { y_put4(batch, e / $COLUMNS4, n, totals[e]); }
  }
}
