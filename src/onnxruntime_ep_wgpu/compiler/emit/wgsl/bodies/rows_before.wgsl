// The number of rows before a row in lexicographic order.
  var count = 0i;
  for (var other = 0u; other < $rows; other++) {
    for (var k = 0u; k < $columns; k++) {
      let theirs = x_at(other, k);
      let mine = x_at(row, k);
      if (theirs != mine) {
        count += select(0i, 1i, theirs < mine);
        break;
      }
    }
  }
  return count;
