// A cache with an update from a start on. CIRCULAR: the update wraps around at the end.
#default STARTS has("starts")
#if STARTS
  let start = starts_at(batch);
#else
  let start = 0i;
#end
  var k = i32(at) - start;
#if CIRCULAR
  k = floormod_i32(k, i32($extent));
#end
  if (start >= 0 && k >= 0 && k < i32($count)) { return update_at(batch, outer, u32(k), inner); }
  return past_at(batch, outer, at, inner);
