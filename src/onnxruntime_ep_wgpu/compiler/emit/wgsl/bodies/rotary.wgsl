// An element of x rotated with the other one of its pair, its neighbour when INTERLEAVED, else `half` elements away; those behind
// the pairs stay. AXIS0 to AXIS2 are the names of the coordinates before d. ROWS says which row of the tables of cosines and sines:
// that of "each" step, or "from" the one of the first step on; when it is empty they are by batch and step. With IN_PARTS rows count
// from where the part of a sequence begins.
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
  // Of those behind the pairs another one is calculated, and left: no branch divides the loads.
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
