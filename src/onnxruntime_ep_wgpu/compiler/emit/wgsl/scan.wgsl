// Running totals along rows. LANES neighbouring invocations share a row, each with a run of neighbouring elements. They first
// combine their runs. Then each begins with the total of the runs before its own.
var<workgroup> partial: array<$y_t, $WG>;

fn place(k: u32) -> u32 { return select(k, $columns - 1u - k, $REVERSE); }

fn kernel(w: u32, lane: u32) {
  let row = w * $ROWS + lane / $LANES;
  let me = lane % $LANES;
  let run = ($columns + $LANES - 1u) / $LANES;
  let first = min(me * run, $columns);
  let end = select(first, min(first + run, $columns), row < $rows);
  var total = identity();
  if ($LANES > 1u) {
    for (var k = first; k < end; k++) { total = combine(total, x_at(row, place(k))); }
    partial[lane] = total;
    for (var step = 1u; step < $LANES; step *= 2u) {
      workgroupBarrier();
      if (me >= step) { total = combine(partial[lane - step], total); }
      workgroupBarrier();
      partial[lane] = total;
    }
    workgroupBarrier();
    total = identity();
    if (me > 0u) { total = partial[lane - 1u]; }
  }
  for (var k = first; k < end; k++) {
    let at = place(k);
    let next = combine(total, x_at(row, at));
    if ($EXCLUSIVE) { y_put(row, at, total); } else { y_put(row, at, next); }
    total = next;
  }
}
