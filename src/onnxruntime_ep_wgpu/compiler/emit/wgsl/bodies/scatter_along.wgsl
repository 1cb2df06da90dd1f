// An element of x after updates along an AXIS, of which FEW are looked at one by one. Of more the `last` one is known, or they
// are sorted by the element that they are meant for. On other axes there may be fewer updates than elements, where LIMITED.
// Where COMBINED, `COMBINE` is what becomes of `total` with an update `u`; else the last update counts.
#for k RANK
#if LIMITED#k
  if (at#k >= $limit#k) { return x_at(#[at#d for d RANK]); }
#end
#end
#if FEW and not COMBINED
  for (var n = $count - 1u; n < $count; n--) {
    if (keys_at(#[#("n" if #k == AXIS else "at#k") for k RANK]) == i32(at#(AXIS))) {
      return updates_at(#[#("n" if #k == AXIS else "at#k") for k RANK]);
    }
  }
  return x_at(#[at#k for k RANK]);
#end
#if not FEW and not COMBINED
  let n = u32(last_at(#[at#k for k RANK]));
  if (n < $count) { return updates_at(#[#("n" if #k == AXIS else "at#k") for k RANK]); }
  return x_at(#[at#k for k RANK]);
#end
#if COMBINED
  var total = x_at(#[at#k for k RANK]);
#if FEW
  for (var n = 0u; n < $count; n++) {
    if (keys_at(#[#("n" if #k == AXIS else "at#k") for k RANK]) != i32(at#(AXIS))) { continue; }
#else
  for (var p = u32(first_at(#[at#k for k RANK])); p < $count; p++) {
    let n = u32(order_at(#[#("p" if #k == AXIS else "at#k") for k RANK]));
    if (keys_at(#[#("n" if #k == AXIS else "at#k") for k RANK]) != i32(at#(AXIS))) { break; }
#end
    let u = updates_at(#[#("n" if #k == AXIS else "at#k") for k RANK]);
    total = $COMBINE;
  }
  return total;
#end
