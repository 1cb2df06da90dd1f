// An element of the selected slices. Zero after them.
  let count = u32(count_at(0u));
  if (e >= $outer * count * $inner) { return $out_t(); }
  let place = u32(place_at(e / $inner % count));
  return x_at(e / ($inner * count), place, e % $inner);
