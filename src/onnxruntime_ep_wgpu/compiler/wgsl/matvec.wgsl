// Matrix product y = a b for at most ROWS rows: the time is that of reading b, which is read once. A workgroup computes
// 4 * COLUMNS4 columns; its PARTS parts of invocations split k between them, four of k at a time, neighbours in the order in
// which b lies in memory. With TRANSPOSED that is along k, and b_at4(batch, n, k) loads four of k. Of several PRODUCTS with one a,
// whose weights are b, b1 and so on, a workgroup computes the same columns.
const PARTS = $WG / $COLUMNS4;

var<workgroup> parts: array<vec4<$y_t>, $WG>;
var<workgroup> totals: array<vec4<$y_t>, $PRODUCTS * $ROWS * $COLUMNS4>;

#include a_part
#include a_scale

#for q PRODUCTS
// Row k + e of b from column n on; or column n + e from row k on. Zeros from the end of k on, whatever lies there.
fn b#(#q or "")_part(batch: u32, k: u32, n: u32, e: u32) -> vec4<$y_t> {
  if ($TRANSPOSED) {
    if (k >= $k) { return vec4<$y_t>(); }
    return before_end(b#(#q or "")_at4(batch, min(n + e, $n - 1u), k), k);
  }
  if (k + e >= $k) { return vec4<$y_t>(); }
  return b#(#q or "")_at4(batch, k + e, n);
}

#end
fn kernel(w: u32, lane: u32) {
  let batch = w / $tiles_n;
  let first = w % $tiles_n * (4u * $COLUMNS4);
  let column4 = select(lane % $COLUMNS4, lane / PARTS, $TRANSPOSED);
  let part = select(lane / $COLUMNS4, lane % PARTS, $TRANSPOSED);
  let column = min(first + column4 * 4u, ($n - 1u) / 4u * 4u);
#for r ROWS
#for q PRODUCTS
  var sum#q_#r = vec4<$y_t>();
#end
  let row#r = min(#ru, $m - 1u);
#end
#if SCALED
  let squares = a_squares(lane);
#end
  for (var k0 = part * 4u; k0 < $k; k0 += PARTS * 4u * $STEPS) {
#for s STEPS
#for q PRODUCTS
#for e 4
    let right#q_#s_#e = b#(#q or "")_part(batch, k0 + #su * PARTS * 4u, column, #eu);
#end
#end
#end
#for s STEPS
#for r ROWS
    {
      let left = a_part(batch, row#r, k0 + #su * PARTS * 4u);
#for q PRODUCTS
      if ($TRANSPOSED) {
        sum#q_#r += vec4<$y_t>(#[dot(left, right#q_#s_#e) for e 4]);
      } else {
        sum#q_#r += left.x * right#q_#s_0 + left.y * right#q_#s_1 + left.z * right#q_#s_2 + left.w * right#q_#s_3;
      }
#end
    }
#end
#end
  }
#if SCALED
  let scale = a_scale(lane, squares);
#end
#if SUBGROUPS and COLUMNS4 == 1
  // As in workgroup_sum: all invocations share the columns.
#for r ROWS
#for q PRODUCTS
  sum#q_#r = subgroupAdd(sum#q_#r);
  workgroupBarrier();
  parts[lane] = select(vec4<$y_t>(), sum#q_#r, subgroupElect());
  workgroupBarrier();
  sum#q_#r = vec4<$y_t>();
  for (var p = subgroup_lane; p < $WG; p += subgroup_width) { sum#q_#r += parts[p]; }
  sum#q_#r = subgroupAdd(sum#q_#r);
  if (lane == 0u) { totals[#q * $ROWS + #r] = sum#q_#r; }
#end
#end
#else
  let mine = column4 * PARTS + part;
#for r ROWS
#for q PRODUCTS
  workgroupBarrier();
  parts[mine] = sum#q_#r;
  for (var half = PARTS / 2u; half > 0u; half /= 2u) {
    workgroupBarrier();
    if (part < half) { parts[mine] += parts[mine + half]; }
  }
  if (part == 0u) { totals[(#qu * $ROWS + #ru) * $COLUMNS4 + column4] = parts[mine]; }
#end
#end
#end
  workgroupBarrier();
  for (var e = lane; e < min($m, $ROWS) * $COLUMNS4; e += $WG) {
    let n = first + e % $COLUMNS4 * 4u;
#for q PRODUCTS
#if SCALED
    let total#q = totals[#qu * $ROWS * $COLUMNS4 + e] * scale;
#else
    let total#q = totals[#qu * $ROWS * $COLUMNS4 + e];
#end
#end
    if (n < $n) { y_put4(batch, e / $COLUMNS4, n, #[total#q for q PRODUCTS]); }
  }
}
