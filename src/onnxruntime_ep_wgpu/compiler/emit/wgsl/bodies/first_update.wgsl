// The first position, in the order of updates, of the updates of an element. The number of all updates if it has none.
  var low = 0u;
  var high = $count;
  while (low < high) {
    let middle = (low + high) / 2u;
    let key = keys_at(before, u32(order_at(before, middle, after)), after);
    if (key < i32(along)) { low = middle + 1u; } else { high = middle; }
  }
  if (low >= $count) { return i32($count); }
  let n = order_at(before, low, after);
  return select(i32($count), i32(low), keys_at(before, u32(n), after) == i32(along));
