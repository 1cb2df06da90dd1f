// Where in the order of updates those of an element begin, or with LAST the number of the last of them; the number of all updates
// where none is meant for it.
  var low = 0u;
  var high = $count;
  while (low < high) {
    let middle = (low + high) / 2u;
    let key = keys_at(before, u32(order_at(before, middle, after)), after);
#if LAST
    if (key <= i32(along)) { low = middle + 1u; } else { high = middle; }
#else
    if (key < i32(along)) { low = middle + 1u; } else { high = middle; }
#end
  }
#if LAST
  let p = low - 1u;
#else
  let p = low;
#end
  if (p >= $count) { return i32($count); }
  let n = order_at(before, p, after);
  return select(i32($count), #("n" if LAST else "i32(p)"), keys_at(before, u32(n), after) == i32(along));
