// Reduces rows of `columns` elements: LANES neighbouring invocations share a row, ROWS rows share a workgroup. The operator
// provides identity, prepare (maps an element), combine, and finish (computes the result from the total and the number of
// elements).
//
// TOGETHER is the workgroup reduction of the prelude that equals combine, if there is one. GIVES_WORDS: totals are stored as four
// words for a kernel that combines parts of a row, which has READS_WORDS.
#let EXCHANGED SUBGROUPS and TOGETHER and LANES == INVOCATIONS
#if EXCHANGED
#else
var<workgroup> partial: array<$combine_t, $WG>;
#end

fn element(row: u32, k: u32) -> $combine_t {
#if READS_WORDS
  return $combine_t(#[x_at(row, k, #eu) for e 4]);
#else
  return prepare(x_at(row, k));
#end
}

fn kernel(w: u32, lane: u32) {
  let row = w * $ROWS + lane / $LANES;
  let me = lane % $LANES;
  var total = identity();
  if (row < $rows) {
    // In blocks, so that a long sum of f32 does not lose late addends.
    for (var start = me; start < $columns; start += 32u * $LANES) {
      let end = min(start + 32u * $LANES, $columns);
      var block = identity();
      for (var k = start; k < end; k += $LANES) { block = combine(block, element(row, k)); }
      total = combine(total, block);
    }
  }
#if EXCHANGED
  total = workgroup_#(TOGETHER)(lane, total);
#else
  if ($LANES > 1u) {
    // The modulo only serves the proofs of browsers.
    let at = lane % $WG;
    partial[at] = total;
    for (var n = $LANES / 2u; n > 0u; n /= 2u) {
      workgroupBarrier();
      if (me < n) { partial[at] = combine(partial[at], partial[(at + n) % $WG]); }
    }
    total = partial[at];
  }
#end
  if (me == 0u && row < $rows) {
#if GIVES_WORDS
#for e 4
    y_put(row, #eu, total[#e]);
#end
#else
    y_put(row, finish(total, $count));
#end
  }
}
