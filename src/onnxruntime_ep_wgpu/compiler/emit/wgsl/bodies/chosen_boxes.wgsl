// Batch, class and box of each selected box, of all rows one after the other. Zeros after them.
  let number = e / 3u;
  if (i32(number) >= count_at(0u)) { return 0i; }
  var low = 0u;
  var high = $rows;
  while (low < high) {
    let middle = (low + high) / 2u;
    if (totals_at(middle) > i32(number)) { high = middle; } else { low = middle + 1u; }
  }
  let row = min(low, $rows - 1u);
  if (e % 3u == 0u) { return i32(row / $classes); }
  if (e % 3u == 1u) { return i32(row % $classes); }
  var before = 0i;
  if (row > 0u) { before = totals_at(row - 1u); }
  return box_at(row, number - u32(before));
