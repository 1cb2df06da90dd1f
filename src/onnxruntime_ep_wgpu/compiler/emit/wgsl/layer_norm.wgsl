// Normalises rows of `columns` elements to mean 0 and variance 1, then scales and shifts. The variance uses the centred elements,
// which keeps it exact for rows far from 0. Without CENTRED the mean counts as 0. KEEPS: the rows are also stored unchanged.
#default MEAN has("mean")
#default INVERSE has("inverse")
#default KEEPS False
fn kernel(w: u32, lane: u32) {
  let row = min(w * $ROWS + lane / $LANES, $rows - 1u);
  let me = lane % $LANES;
  var mean = 0f;
  if ($CENTRED) {
    // Sums are computed in blocks, so that a long sum does not lose late addends.
    var total = 0f;
    for (var start = me; start < $columns; start += 32u * $LANES) {
      let end = min(start + 32u * $LANES, $columns);
      var block = 0f;
      for (var k = start; k < end; k += $LANES) { block += x_at(row, k); }
      total += block;
    }
    mean = lanes_sum(lane, $LANES, total) / f32($columns);
  }
  var squares = 0f;
  for (var start = me; start < $columns; start += 32u * $LANES) {
    let end = min(start + 32u * $LANES, $columns);
    var block = 0f;
    for (var k = start; k < end; k += $LANES) {
      let v = x_at(row, k) - mean;
      block += v * v;
    }
    squares += block;
  }
  var inverse = 1f / sqrt(lanes_sum(lane, $LANES, squares) / f32($columns) + $EPSILON);
  if ($columns == 0u) {  // drivers differ in the result of a division by zero
    mean = float_bits(0x7fc00000u);
    inverse = mean;
  }
  if (w * $ROWS + lane / $LANES < $rows) {
    for (var k = me; k < $columns; k += $LANES) {
      let v = x_at(row, k);
      let y = (v - mean) * inverse * gain_at(k) + bias_at(k);
#if KEEPS
      y_put(row, k, y, v);
#else
      y_put(row, k, y);
#end
    }
    if (me == 0u) {
#if MEAN
      mean_put(row, mean);
#end
#if INVERSE
      inverse_put(row, inverse);
#end
    }
  }
}
