// The first position with a running total above k, or the number of positions.
  var low = 0u;
  var high = $columns;
  while (low < high) {
    let middle = (low + high) / 2u;
    if (totals_at(middle) > i32(k)) { high = middle; } else { low = middle + 1u; }
  }
  return i32(low);
