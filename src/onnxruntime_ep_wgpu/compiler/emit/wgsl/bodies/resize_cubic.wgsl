// The elements around the source of an output element, four along each axis that is RESIZED, weighted by Keys' kernel with
// coefficient A. Elements outside repeat the border or, with EXCLUDE_OUTSIDE, have no weight.
#include bodies/resize_places
  var total = 0f;
#if EXCLUDE_OUTSIDE
  var weight = 0f;
#end
  let w0 = 1f;
#for k RANK
#if RESIZED#k
  for (var t#k = -1; t#k < 3; t#k++) {
    let base#k = floor(place#k);
    let d#k = abs(place#k - base#k - f32(t#k));
    let near#k = (#(A + 2)f * d#k - #(A + 3)f) * d#k * d#k + 1f;
    let far#k = ((#(A)f * d#k - #(5 * A)f) * d#k + #(8 * A)f) * d#k - #(4 * A)f;
    let w#(#k + 1) = w#k * select(far#k, near#k, d#k <= 1f);
    let tap#k = i32(base#k) + t#k;
#if EXCLUDE_OUTSIDE
    if (tap#k < 0 || tap#k >= i32($in#k)) { continue; }
#end
    let i#k = u32(clamp(tap#k, 0, i32($in#k) - 1));
#else
  let w#(#k + 1) = w#k;
#end
#end
#if EXCLUDE_OUTSIDE
  weight += w#(RANK);
#end
  total += w#(RANK) * f32(x_at(#[#("i#k" if RESIZED#k else "o#k") for k RANK]));
#for k RANK
#if RESIZED#k
  }
#end
#end
#if EXCLUDE_OUTSIDE
  total /= weight;
#end
  return $out_t(total);
