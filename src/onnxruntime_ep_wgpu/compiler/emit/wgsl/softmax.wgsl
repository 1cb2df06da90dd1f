// Softmax or its logarithm over rows of `columns` elements, after subtraction of the maximum. MASKED: a row with only minus
// infinity becomes zeros. With a SINK each row has one more number, which takes its share but has no result.
#default LOGARITHM False
#default MASKED False
#default SINK has("sink")
fn kernel(w: u32, lane: u32) {
  let row = min(w * $ROWS + lane / $LANES, $rows - 1u);
  let me = lane % $LANES;
  var highest = x_at(row, 0u);
  for (var k = me; k < $columns; k += $LANES) { highest = max_f32(highest, x_at(row, k)); }
  highest = lanes_max(lane, $LANES, highest);
#if SINK
  let sink = sink_at(row);
  highest = max_f32(highest, sink);
#end
  if ($MASKED && bitcast<u32>(highest) == 0xff800000u) { highest = 0f; }
  // In blocks, so that a long sum of f32 does not lose late addends.
  var total = 0f;
  for (var start = me; start < $columns; start += 32u * $LANES) {
    let end = min(start + 32u * $LANES, $columns);
    var block = 0f;
    for (var k = start; k < end; k += $LANES) { block += exp(x_at(row, k) - highest); }
    total += block;
  }
  total = lanes_sum(lane, $LANES, total);
#if SINK
  total += exp(sink - highest);
#end
  if ($MASKED && total == 0f) { total = 1f; }
  if (w * $ROWS + lane / $LANES < $rows) {
    for (var k = me; k < $columns; k += $LANES) {
      let v = x_at(row, k) - highest;
      if ($LOGARITHM) { y_put(row, k, v - log_f32(total)); } else { y_put(row, k, exp(v) / total); }
    }
  }
}
