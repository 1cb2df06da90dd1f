// An element of a tensor that is padded along each axis with PADDED. For a constant pad, a position outside wraps beyond every
// extent. Other modes move it inside.
#for k RANK
#if PADDED#k
#if MODE == "constant"
  let i#k = at#k - $begin#k;
  if (i#k >= $extent#k) { return fill_at(0u); }
#end
#if MODE == "edge"
  let i#k = u32(clamp(i32(at#k) - i32($begin#k), 0, i32($extent#k) - 1));
#end
#if MODE == "reflect"
  let i#k = reflected(i32(at#k) - i32($begin#k), i32($extent#k));
#end
#if MODE == "wrap"
  let i#k = u32(floormod_i32(i32(at#k) - i32($begin#k), i32($extent#k)));
#end
#end
#end
  return x_at(#[#("i#k" if PADDED#k else "at#k") for k RANK]);
