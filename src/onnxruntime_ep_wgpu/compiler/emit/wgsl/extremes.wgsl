// The smallest and largest element of each row (EXTREMES), or the scale and zero point for uint8 (QUANTISED). Rows are LANES
// invocations wide; ROWS of them share a workgroup.
#default QUANTISED has("scale")
#default EXTREMES not QUANTISED
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
  if (me == 0u && w * $ROWS + lane / $LANES < $rows) {
#if EXTREMES
    low_put(row, low);
    high_put(row, high);
#end
#if QUANTISED
    low = min(low, 0f);
    high = max(high, 0f);
    let scale = select(quotient_f32(high - low, 255f), 1f, high == low);
    scale_put(row, scale);
    zero_put(row, i32(round(clamp_f32(-quotient_f32(low, scale), 0f, 255f))));
#end
  }
}
