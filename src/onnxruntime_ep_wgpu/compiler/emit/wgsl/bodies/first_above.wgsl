// The first place where the running total is more than k, or how many places there are.
  var low = 0u;
  var high = $columns;
  while (low < high) {
    let middle = (low + high) / 2u;
    if (totals_at(middle) > i32(k)) { high = middle; } else { low = middle + 1u; }
  }
  return i32(low);
