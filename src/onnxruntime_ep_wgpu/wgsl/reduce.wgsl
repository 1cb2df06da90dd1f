// Reduces rows of `columns` elements: LANES neighbouring invocations share a row, ROWS rows share a workgroup.
// The operator supplies identity, prepare (per element), combine and finish (on the result and the number of elements).
var<workgroup> partial: array<$y_t, $WG>;

fn kernel(w: u32, lane: u32) {
  let row = w * $ROWS + lane / $LANES;
  let me = lane % $LANES;
  var total = identity();
  if (row < $rows) {
    for (var k = me; k < $columns; k += $LANES) { total = combine(total, prepare(x_at(row, k))); }
  }
  if ($LANES > 1u) {
    partial[lane] = total;
    for (var n = $LANES / 2u; n > 0u; n /= 2u) {
      workgroupBarrier();
      if (me < n) { partial[lane] = combine(partial[lane], partial[lane + n]); }
    }
    total = partial[lane];
  }
  if (me == 0u && row < $rows) { y_put(row, finish(total, f32($columns))); }
}
