// The position of the k-th marked element of a row, which is the first one with a running total above k. 0 after the last one.
  if (i32(k) >= there_at(row)) { return 0i; }
  var low = 0u;
  var high = $columns;
  while (low < high) {
    let middle = (low + high) / 2u;
    if (totals_at(row, middle) > i32(k)) { high = middle; } else { low = middle + 1u; }
  }
  return i32(low);
