// The coordinates of the selected positions, one axis after the other. Zeros after them.
  let count = u32(count_at(0u));
  if (e >= #(RANK)u * count) { return 0i; }
  let place = u32(place_at(e % count));
#for k RANK
  if (e / count == #ku) { return i32(place / $stride#k % $extent#k); }
#end
  return 0i;
