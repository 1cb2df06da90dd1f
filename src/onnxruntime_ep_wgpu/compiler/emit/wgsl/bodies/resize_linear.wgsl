// The elements around the source of an output element, two along each axis that is RESIZED, weighted by distance. Their numbers
// have a bit for each such axis, BIT0 for the first of all axes. Each axis halves their number; CORNERS1 remain for the first
// axis. At the border one element is both neighbours: a weight of 0 for one of them would turn an infinity into NaN.
#include bodies/resize_places
#for k RANK
#if RESIZED#k
  let inside#k = clamp(place#k, 0f, f32($in#k) - 1f);
  let i#k_0 = u32(inside#k);
  let i#k_1 = min(i#k_0 + 1u, $in#k - 1u);
  let part#k = select(inside#k - f32(i#k_0), 0.5f, i#k_0 == i#k_1);
#end
#end
#for c CORNERS#(RANK)
  let v#(RANK)_#c = f32(x_at(#[#("o#k" if not RESIZED#k else "i#k_1" if #c // BIT#k % 2 else "i#k_0") for k RANK]));
#end
#for k RANK down
#for c CORNERS#k
#if RESIZED#k
  let v#k_#c = v#(#k + 1)_#(2 * #c) * (1f - part#k) + v#(#k + 1)_#(2 * #c + 1) * part#k;
#else
  let v#k_#c = v#(#k + 1)_#c;
#end
#end
#end
  return $out_t(v0_0);
