// Sorts short rows, like sort: each element counts those before it, including equal ones further left. The first k store
// their position.
fn kernel(w: u32, lane: u32) {
  let element = w * $WG + lane;
  if (element >= $rows * $columns) { return; }
  let row = element / $columns;
  let at = element % $columns;
  let v = x_at(row, at);
  var rank = 0u;
  for (var other = 0u; other < $columns; other++) {
    let u = x_at(row, other);
    if (before(u, v) || (other < at && same(u, v))) { rank++; }
  }
  if (rank < $k) { y_put(row, rank, i32(at)); }
}
