// Matrix product y = a b for few rows and packed weights b (n, k), bound by reading b, once for ROWS rows. An invocation
// accumulates four columns. PARTS neighbours share them and take turns along k, RUN elements at a time, which are whole words of
// b. The scale of a block is the common factor of a run, and scales its sum once. For several PRODUCTS of one a, with weights b,
// b1 and so on, an invocation accumulates the same columns. With DOTS a run of a is rounded to 8 bits, and bytes are multiplied.
#default PRODUCTS 1
const RUN = 4u * $RUN4;

#let EXCHANGED SUBGROUPS and PARTS == INVOCATIONS
#if EXCHANGED
const SUMS = $PRODUCTS * $ROWS;
#include subgroup_sums
#if SCALED
var<workgroup> squares_of: array<f32, $WG>;
#end
#else
var<workgroup> parts: array<vec4<$y_t>, $PRODUCTS * $ROWS * $WG>;
#end

#include a_part
#include a_scale
#if DOTS
#include rounded_run
#end

fn kernel(w: u32, lane: u32) {
#if ALONE
  // Avoids divisions: a division by a number that the shader compiler cannot evaluate costs as much as ten weights.
  let batch = 0u;
  let row = 0u;
  let tile = w;
#else
  let batch = w / ($tiles_m * $tiles_n);
  let row = w / $tiles_n % $tiles_m * $ROWS;
  let tile = w % $tiles_n;
#end
  let part = lane % $PARTS;
  let n = (tile * ($WG / $PARTS) + lane / $PARTS) * 4u;
#for c 4
  let column#c = min(n + #cu, $n - 1u);
#end
#for r ROWS
#for q PRODUCTS
  var sum#q_#r = vec4<$y_t>();
#end
  let row#r = min(row + #ru, $m - 1u);
#end
#if SCALED
  let squares = a_squares(lane);
#end
  let last = ($k - 1u) / RUN * RUN;
  for (var k0 = part * RUN; k0 < $k; k0 += $PARTS * RUN * $STEPS) {
#for s STEPS
#for q PRODUCTS
#for c 4
    let b#q_#s_#c = b#(#q or "")_run_#("bytes_" if DOTS else "")of(b#(#q or "")_run_words(batch, column#c, min(k0 + #su * $PARTS * RUN, last)));
#end
#end
#end
#for s STEPS
    if ($K_WHOLE || k0 + #su * $PARTS * RUN < $k) {
#for r ROWS
      {
#if DOTS
        let run = array(#[a_part(batch, row#r, k0 + #su * $PARTS * RUN + 4u * #ju) for j RUN4]);
        let most = largest(largest_bits(run));
        let left = rounded(run, most);
#for q PRODUCTS
#for c 4
        let dot#q_#c = f32(#[dot4I8Packed(left[#j], b#q_#s_#c.v[#j]) for j RUN4 by +]);
#end
#end
#else
#for q PRODUCTS
#for c 4
        var dot#q_#c = 0f;
#end
#end
#for j RUN4
        {
          let left = a_part(batch, row#r, k0 + #su * $PARTS * RUN + 4u * #ju);
#for q PRODUCTS
#for c 4
          dot#q_#c += dot(left, b#q_#s_#c.v[#j]);
#end
#end
        }
#end
#end
#for q PRODUCTS
        sum#q_#r += vec4<$y_t>(#[dot#q_#c * b#q_#s_#c.scale for c 4])#(" * (most / 127f)" if DOTS else "");
#end
      }
#end
    }
#end
  }
#if EXCHANGED
#for q PRODUCTS
#for r ROWS
  keep_sum(#qu * $ROWS + #ru, sum#q_#r);
#end
#end
#if SCALED
  let of_squares = subgroupAdd(squares);
  if (subgroup_leads) { squares_of[subgroup_number] = of_squares; }
#end
#else
#for q PRODUCTS
#for r ROWS
  parts[(#qu * $ROWS + #ru) * $WG + lane] = sum#q_#r;
#end
#end
  for (var half = $PARTS / 2u; half > 0u; half /= 2u) {
    workgroupBarrier();
    if (part < half) {
#for q PRODUCTS
#for r ROWS
      parts[(#qu * $ROWS + #ru) * $WG + lane] += parts[(#qu * $ROWS + #ru) * $WG + lane + half];
#end
#end
    }
  }
#if SCALED
  let scale = a_scale(lanes_sum(lane, $WG, squares));
#end
#end
  workgroupBarrier();
  if (n < $n) {
    for (var r = part; r < min($m - row, $ROWS); r += $PARTS) {
#if EXCHANGED
#for q PRODUCTS
      var total#q = kept_sum(#qu * $ROWS + r);
#end
#if SCALED
      var all = 0f;
      for (var s = 0u; s < subgroup_count; s++) { all += squares_of[s]; }
      let scale = a_scale(all);
#end
#else
#for q PRODUCTS
      var total#q = parts[(#qu * $ROWS + r) * $WG + lane - part];
#end
#end
#if SCALED
#for q PRODUCTS
      total#q *= scale;
#end
#end
#if FOURS
      y_put4(batch, row + r, n, #[total#q for q PRODUCTS]);
#else
      for (var e = 0u; e < min(4u, $n - n); e++) { y_put(batch, row + r, n + e, #[total#q[e] for q PRODUCTS]); }
#end
    }
  }
}
