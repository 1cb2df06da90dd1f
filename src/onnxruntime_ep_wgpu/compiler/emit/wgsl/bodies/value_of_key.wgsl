// The value of the key that equals an element, or the value after those of all keys. Keys are sorted.
  let key = x_at(at);
  var low = 0u;
  var high = $count;
  while (low < high) {
    let middle = (low + high) / 2u;
    if (keys_at(middle) < key) { low = middle + 1u; } else { high = middle; }
  }
  if (low < $count && keys_at(low) == key) { return values_at(low); }
  return values_at($count);
