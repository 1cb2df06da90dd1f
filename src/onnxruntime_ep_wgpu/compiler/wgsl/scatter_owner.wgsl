// For each slice of the result, which update is the last that writes it, or -1. A workgroup owns $SPAN slices and reads all
// targets, so results do not depend on timing and no memory has to be cleared first.
var<workgroup> latest: array<atomic<u32>, $SPAN>;

fn kernel(w: u32, lane: u32) {
  let first = w * $SPAN;
  for (var k = lane; k < $SPAN; k += $WG) { atomicStore(&latest[k], 0u); }
  workgroupBarrier();
  for (var n = lane; n < $updates; n += $WG) {
    let slot = u32(target_at(n)) - first;
    if (slot < $SPAN) { atomicMax(&latest[slot], n + 1u); }
  }
  workgroupBarrier();
  for (var k = lane; k < min($SPAN, $slices - first); k += $WG) { y_put(first + k, i32(atomicLoad(&latest[k])) - 1); }
}
