// Matrix product y = a b for at most ROWS rows, bound by reading b once. A workgroup computes 4 * COLUMNS4 columns. PARTS
// invocations split k between them, four of k at a time, with neighbours in the memory order of b. With TRANSPOSED that is along
// k, and b_at4(batch, n, k) loads four of k. For several PRODUCTS of one a, with weights b, b1 and so on, a workgroup computes
// the same columns.
//
// With subgroups the order of invocations is that of the subgroups, whatever the adapter's is. So invocations of a subgroup that
// have the same columns exchange their sums. Those of all subgroups are then added with two barriers for each row and product,
// instead of one per halving.
#default PRODUCTS 1
const PARTS = $WG / $COLUMNS4;

#let EXCHANGED SUBGROUPS and COLUMNS4 == 1 and y_t == "f32"
#let BY_COLUMN SUBGROUPS and not TRANSPOSED and COLUMNS4 > 1 and y_t == "f32"
#if EXCHANGED
const SUMS = $PRODUCTS * $ROWS;
#include subgroup_sums
#else
var<workgroup> parts: array<vec4<$y_t>, $WG>;
var<workgroup> totals: array<vec4<$y_t>, $PRODUCTS * $ROWS * $COLUMNS4>;
#end

#include a_part
#include a_scale

#if BY_COLUMN
// The sum over the invocations of a subgroup with the same column.
fn column_sum(v: vec4<$y_t>) -> vec4<$y_t> {
  var sum = v;
#for s SHUFFLES
  sum += select(vec4<$y_t>(), subgroupShuffleXor(sum, #(COLUMNS4 * 2**#s)u), subgroup_width > #(COLUMNS4 * 2**#s)u);
#end
  return sum;
}
#end

#for q PRODUCTS
// Row k + e of b from column n on, or with TRANSPOSED column n + e from row k on. Zeros past the end of k, whatever the memory
// contains there. Without a branch, so that all loads of a step are in flight together.
fn b#(#q or "")_part(batch: u32, k: u32, n: u32, e: u32) -> vec4<$y_t> {
  if ($TRANSPOSED) {
    return before_end(b#(#q or "")_at4(batch, min(n + e, $n - 1u), min(k, ($k - 1u) / 4u * 4u)), k);
  }
  if ($K_WHOLE) { return b#(#q or "")_at4(batch, k + e, n); }
  return select(vec4<$y_t>(), b#(#q or "")_at4(batch, min(k + e, $k - 1u), n), k + e < $k);
}

#end
fn kernel(w: u32, lane: u32) {
#if ALONE
  let batch = 0u;
  let first = w * (4u * $COLUMNS4);
#else
  let batch = w / $tiles_n;
  let first = w % $tiles_n * (4u * $COLUMNS4);
#end
#if SUBGROUPS
  let place = subgroup_number * subgroup_width + subgroup_lane;
#else
  let place = lane;
#end
  let column4 = select(place % $COLUMNS4, place / PARTS, $TRANSPOSED);
  let part = select(place / $COLUMNS4, place % PARTS, $TRANSPOSED);
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
  let scale = a_scale(lanes_sum(lane, $WG, squares));
#end
#if EXCHANGED
#for r ROWS
#for q PRODUCTS
  keep_sum(#qu * $ROWS + #ru, sum#q_#r);
#end
#end
#else
#if BY_COLUMN
  // Of a subgroup, one invocation per column stores a sum, at the place of the first ones.
  let width = max(subgroup_width, $COLUMNS4);
#for r ROWS
#for q PRODUCTS
  {
    let sum = column_sum(sum#q_#r);
    workgroupBarrier();
    if (subgroup_lane < $COLUMNS4) { parts[place % $WG] = sum; }
    workgroupBarrier();
    if (place < $COLUMNS4) {
      var all = vec4<$y_t>();
      for (var k = place; k < $WG; k += width) { all += parts[k]; }
      totals[(#qu * $ROWS + #ru) * $COLUMNS4 + place] = all;
    }
  }
#end
#end
#else
  // The bounds only serve the proofs of browsers.
  let mine = min(column4 * PARTS + part, $WG - 1u);
#for r ROWS
#for q PRODUCTS
  workgroupBarrier();
  parts[mine] = sum#q_#r;
  for (var half = PARTS / 2u; half > 0u; half /= 2u) {
    workgroupBarrier();
    if (part < half) { parts[mine] += parts[(mine + half) % $WG]; }
  }
  if (part == 0u) { totals[(#qu * $ROWS + #ru) * $COLUMNS4 + column4] = parts[mine]; }
#end
#end
#end
#end
  workgroupBarrier();
  for (var e = lane; e < min($m, $ROWS) * $COLUMNS4; e += $WG) {
    let n = first + e % $COLUMNS4 * 4u;
#for q PRODUCTS
#if EXCHANGED
    var total#q = kept_sum(#qu * $ROWS + e);
#else
    var total#q = totals[#qu * $ROWS * $COLUMNS4 + min(e, $ROWS * $COLUMNS4 - 1u)];
#end
#if SCALED
    total#q *= scale;
#end
#end
    if (n < $n) { y_put4(batch, e / $COLUMNS4, n, #[total#q for q PRODUCTS]); }
  }
}
