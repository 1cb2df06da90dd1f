// Reduces rows of `columns` elements: LANES neighbouring invocations share a row, ROWS rows share a workgroup.
// The operator supplies identity, prepare (what is combined, of an element), combine and finish (the result, of that and the number of
// elements). TOGETHER is the reduction over a workgroup of the prelude that combines alike, where there is one. What is combined may
// be stored as four words, GIVES_WORDS, for a kernel that combines what parts of a row gave, READS_WORDS.
#if SUBGROUPS and TOGETHER and LANES == INVOCATIONS
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
    // In blocks, so that a long sum of f32 does not lose what is added late.
    for (var start = me; start < $columns; start += 32u * $LANES) {
      let end = min(start + 32u * $LANES, $columns);
      var block = identity();
      for (var k = start; k < end; k += $LANES) { block = combine(block, element(row, k)); }
      total = combine(total, block);
    }
  }
#if SUBGROUPS and TOGETHER and LANES == INVOCATIONS
  total = workgroup_#(TOGETHER)(lane, total);
#else
  if ($LANES > 1u) {
    // Places are taken modulo for browsers, which prove no more.
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
