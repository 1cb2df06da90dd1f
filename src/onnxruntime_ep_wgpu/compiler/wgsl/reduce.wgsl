// Reduces rows of `columns` elements: LANES neighbouring invocations share a row, ROWS rows share a workgroup.
// The operator supplies identity, prepare (per element), combine and finish (on the result and the number of elements). TOGETHER
// is the reduction over a workgroup of the prelude that combines alike, where there is one.
#if SUBGROUPS and TOGETHER and LANES == INVOCATIONS
#else
var<workgroup> partial: array<$y_t, $WG>;
#end

fn kernel(w: u32, lane: u32) {
  let row = w * $ROWS + lane / $LANES;
  let me = lane % $LANES;
  var total = identity();
  if (row < $rows) {
    // In blocks, so that a long sum of f32 does not lose what is added late.
    for (var start = me; start < $columns; start += 32u * $LANES) {
      let end = min(start + 32u * $LANES, $columns);
      var block = identity();
      for (var k = start; k < end; k += $LANES) { block = combine(block, prepare(x_at(row, k))); }
      total = combine(total, block);
    }
  }
#if SUBGROUPS and TOGETHER and LANES == INVOCATIONS
  total = workgroup_#(TOGETHER)(lane, total);
#else
  if ($LANES > 1u) {
    partial[lane] = total;
    for (var n = $LANES / 2u; n > 0u; n /= 2u) {
      workgroupBarrier();
      if (me < n) { partial[lane] = combine(partial[lane], partial[lane + n]); }
    }
    total = partial[lane];
  }
#end
  if (me == 0u && row < $rows) { y_put(row, finish(total, f32($count))); }
}
