// The place of the k-th element of a row that is marked, which is the first one where the running total is more than k. 0 behind the
// last one.
  if (i32(k) >= there_at(row)) { return 0i; }
  var low = 0u;
  var high = $columns;
  while (low < high) {
    let middle = (low + high) / 2u;
    if (totals_at(row, middle) > i32(k)) { high = middle; } else { low = middle + 1u; }
  }
  return i32(low);
