// The position of the best element of each row. The operator provides better(a, b) and same(a, b). Every lane starts with the
// first element, as a loop over the row would: a NaN there is never beaten, and a NaN elsewhere never wins.
//
// TOGETHER is the workgroup reduction of the prelude that gives the best, if there is one. With EXTREMES the best elements are
// stored too, NaN for a row with a NaN. They result from `prepare`, `combine` (ALIKE over a workgroup) and `finish` of a
// reduction.
#default EXTREMES False
#let EXCHANGED SUBGROUPS and TOGETHER and LANES == INVOCATIONS
#if EXCHANGED
#else
var<workgroup> bests: array<$x_t, $WG>;
var<workgroup> places: array<u32, $WG>;
#if EXTREMES
var<workgroup> extremes: array<$combine_t, $WG>;
#end
#end

fn kernel(w: u32, number: u32) {
  let lane = number % $WG;  // lets a browser prove bounds
  let row = w * $ROWS + lane / $LANES;
  let me = lane % $LANES;
  var best = x_at(min(row, $rows - 1u), 0u);
  var place = 0u;
#if EXTREMES
  var extreme = prepare(best);
#end
  if (row < $rows) {
    for (var k = me; k < $columns; k += $LANES) {
      let v = x_at(row, k);
      if (better(v, best) || ($LAST && same(v, best))) { best = v; place = k; }
#if EXTREMES
      extreme = combine(extreme, prepare(v));
#end
    }
  }
#if EXCHANGED
  // Reduces over the invocations with the best element. There are none if it is NaN, which is element 0 then.
  let mine = same(best, workgroup_#(TOGETHER)(lane, best));
  let least = workgroup_least(lane, select(0xffffffffu, select(place, ~place, $LAST), mine));
  place = select(select(least, ~least, $LAST), 0u, least == 0xffffffffu);
#if EXTREMES
  extreme = workgroup_#(ALIKE)(lane, extreme);
#end
#else
  if ($LANES > 1u) {
    bests[lane] = best;
    places[lane] = place;
#if EXTREMES
    extremes[lane] = extreme;
#end
    for (var n = $LANES / 2u; n > 0u; n /= 2u) {
      workgroupBarrier();
      if (me < n) {
        let v = bests[(lane + n) % $WG];
        let other = places[(lane + n) % $WG];
        let earlier = (other < places[lane]) != $LAST;
        if (better(v, bests[lane]) || (same(v, bests[lane]) && earlier)) {
          bests[lane] = v;
          places[lane] = other;
        }
#if EXTREMES
        extremes[lane] = combine(extremes[lane], extremes[(lane + n) % $WG]);
#end
      }
    }
    place = places[lane];
#if EXTREMES
    extreme = extremes[lane];
#end
  }
#end
#if EXTREMES
  if (me == 0u && row < $rows) { y_put(row, i32(place), finish(extreme, $columns)); }
#else
  if (me == 0u && row < $rows) { y_put(row, i32(place)); }
#end
}
