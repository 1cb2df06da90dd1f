// The class of a sample: the first one with a running total above a random part of the whole. At the border of separately summed
// parts, rounding may select a class of weight zero. Then the next random word is used.
  let counter = vec4<u32>(i, row, state_at(2u), state_at(3u));
  let words = philox(counter, vec2<u32>(state_at(0u), state_at(1u)));
  var found = 0u;
  for (var attempt = 0u; attempt < 4u; attempt++) {
    let wanted = unit_u32(words[attempt]) * totals_at(row, $columns - 1u);
    var low = 0u;
    var high = $columns - 1u;
    while (low < high) {
      let middle = (low + high) / 2u;
      if (totals_at(row, middle) > wanted) { high = middle; } else { low = middle + 1u; }
    }
    found = low;
    if (weights_at(row, found) > 0f) { break; }
  }
  return i32(found);
