// Like top_rank, for rows that no invocation comes to the end of: a dispatch compares with `part` elements of the row and
// leaves in `rank` how many come before; after the last one the first k put their position.
fn kernel(w: u32, lane: u32) {
  let element = w * $WG + lane;
  if (element >= $rows * $columns) { return; }
  let row = element / $columns;
  let at = element % $columns;
  let v = x_at(row, at);
  let begin = $repetition * $part;
  let end = min(begin + $part, $columns);
  var rank = 0u;
  if (begin > 0u) { rank = u32(rank_at(row, at)); }
  for (var other = begin; other < end; other++) {
    let u = x_at(row, other);
    if (larger(u, v) || (other < at && same(u, v))) { rank++; }
  }
  rank_put(row, at, i32(rank));
  if (end == $columns && rank < $k) { y_put(row, rank, i32(at)); }
}
