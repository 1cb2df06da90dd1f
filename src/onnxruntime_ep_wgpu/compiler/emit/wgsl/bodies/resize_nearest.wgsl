// The element nearest to the source of an output element. FACTOR0, if it is not 0, is the factor by which an axis grows, with
// repeated elements. A position may have a few rounding errors (5e-7 seen on an H200). They matter at halves and whole numbers.
#include bodies/resize_places
#for k RANK
#if FACTOR#k
  let i#k = o#k / $FACTOR#k;
#else
#if RESIZED#k
  let twice#k = round(2f * place#k);
  let near#k = select(place#k, 0.5f * twice#k, abs(2f * place#k - twice#k) <= 1e-6f * max(1f, abs(twice#k)));
#if ROUNDING#k == "round_prefer_floor"
  let whole#k = ceil(near#k - 0.5f);
#end
#if ROUNDING#k == "round_prefer_ceil"
  let whole#k = floor(near#k + 0.5f);
#end
#if ROUNDING#k == "floor"
  let whole#k = floor(near#k);
#end
#if ROUNDING#k == "ceil"
  let whole#k = ceil(near#k);
#end
  let i#k = u32(clamp(whole#k, 0f, f32($in#k) - 1f));
#end
#end
#end
  return x_at(#[#("i#k" if RESIZED#k else "o#k") for k RANK]);
