// An element of x after updates along an AXIS. FEW updates are searched one by one. For more updates, the `last` one of each
// element is known, or they are sorted by their element. LIMITED: other axes may have fewer updates than elements. With COMBINED,
// `COMBINE` combines `total` with an update `u`. Otherwise the last update counts.
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
