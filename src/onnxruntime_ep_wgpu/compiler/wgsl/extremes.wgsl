// The smallest and largest element of each row. Rows are LANES invocations wide; ROWS of them share a workgroup.
fn kernel(w: u32, lane: u32) {
  let row = min(w * $ROWS + lane / $LANES, $rows - 1u);
  let me = lane % $LANES;
  var low = low_at(row, 0u);
  var high = high_at(row, 0u);
  for (var k = me; k < $columns; k += $LANES) {
    low = min(low, low_at(row, k));
    high = max(high, high_at(row, k));
  }
  low = -lanes_max(lane, $LANES, -low);
  high = lanes_max(lane, $LANES, high);
  if (me == 0u && w * $ROWS + lane / $LANES < $rows) { $PUT }
}
