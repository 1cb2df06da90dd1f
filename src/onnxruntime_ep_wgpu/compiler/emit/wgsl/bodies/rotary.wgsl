// An element of x, rotated with the other one of its pair: its neighbour if INTERLEAVED, else the one `half` elements away.
// Elements after the pairs stay. AXIS0 to AXIS2 are the names of the coordinates before d. ROWS selects the row of the tables of
// cosines and sines: that of "each" step, or rows "from" that of the first step on. If it is empty, the tables have batch and
// step. With IN_PARTS, rows count from the beginning of the part of a sequence.
#if ROWS
#if MAY_BE_EMPTY
  if ($rows == 0u) { return $out_t(); }
#end
#if ROWS == "each"
  let position = each_at(batch, step);
#else
  let position = first_at(batch) + i32(step);
#end
#if IN_PARTS
  let row = element_of(position + part_at(batch), $rows);
#else
  let row = element_of(position, $rows);
#end
#end
  let v = x_at(#[#(AXIS#k) for k 3], d);
  // Elements after the pairs compute an unused rotation, so that no branch separates the loads.
#if INTERLEAVED
  let k = min(d / 2u, $half - 1u);
  let second = (d & 1u) == 1u;
  let other = 2u * k + u32(!second);
#else
  let second = d >= $half;
  let k = min(select(d, d - $half, second), $half - 1u);
  let other = select(k + $half, k, second);
#end
  let c = cosines_at(#("row" if ROWS else "batch, step"), k);
  let s = sines_at(#("row" if ROWS else "batch, step"), k);
  let u = x_at(#[#(AXIS#k) for k 3], other);
  return select(select(c * v - s * u, s * u + c * v, second), v, d >= 2u * $half);
