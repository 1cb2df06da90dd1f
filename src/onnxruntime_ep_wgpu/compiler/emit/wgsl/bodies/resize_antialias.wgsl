// The weighted elements around the source of an output element, along the only axis that is RESIZED. The weights decrease with
// distance, and reach further if the axis becomes shorter. WIDE is the number of input elements per output element, at least 1,
// or 0 if the extents define it. Elements outside repeat the border or, with EXCLUDE_OUTSIDE, have no weight.
//
// KIND bytes: the weights are integers in units of 2^-22, like those of the CPU provider, so that sums and ties are exact.
#include bodies/resize_places
#if CUBIC
#inline near(d) (#(A + 2)f * d - #(A + 3)f) * d * d + 1f
#inline far(d) ((#(A)f * d - #(5 * A)f) * d + #(8 * A)f) * d - #(4 * A)f
#inline weight(d) select(select(0f, far(d), d < 2f), near(d), d < 1f)
#else
#inline weight(d) max(0f, 1f - d)
#end
#for k RANK
#if RESIZED#k
#if WIDE#k
  let wide = #(WIDE#k)f;
#else
  let wide = max(1f, quotient_f32(f32($in#k), f32($out#k)));
#end
  let narrow = quotient_f32(1f, wide);
  let reach = $REACH * wide;
  let place = place#k;
#if EXCLUDE_OUTSIDE
  let first = max(i32(floor(place - reach + 1f)), 0);
  let end = min(i32(floor(place + reach + 1f)), i32($in#k));
#else
  let first = i32(floor(place - reach + 1f));
  let end = i32(floor(place + reach + 1f));
#end
  var weights = 0f;
  for (var i = first; i < end; i++) {
    let d = abs(f32(i) - place) * narrow;
    weights += weight(d);
  }
  let part = quotient_f32(1f, select(weights, 1f, weights == 0f));
#if KIND == "bytes"
  var total = 2097152;
#else
  var total = 0f;
#end
  for (var i = first; i < end; i++) {
    let d = abs(f32(i) - place) * narrow;
    let w = weight(d) * part;
    let tap = u32(clamp(i, 0, i32($in#k) - 1));
#if KIND == "bytes"
    let scaled = 4194304f * w;
    total += i32(scaled + select(0.5f, -0.5f, scaled < 0f)) * i32(x_at(#[#("tap" if RESIZED#d else "o#d") for d RANK]));
#else
    total += w * f32(x_at(#[#("tap" if RESIZED#d else "o#d") for d RANK]));
#end
  }
#end
#end
#if KIND == "bytes"
  return $out_t(clamp(total >> 22u, #(LOWEST), #(HIGHEST)));
#end
#if KIND == "integers"
  let whole = trunc(total);
  return $out_t(whole + select(0f, select(1f, -1f, total < 0f), abs(total - whole) >= 0.5f));
#end
#if KIND == "floats"
  return $out_t(total);
#end
