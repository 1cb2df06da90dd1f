// An element of x turned with the other one of its pair, its neighbour when INTERLEAVED, else `half` elements away; those behind
// the pairs stay. AXIS0 to AXIS2 are the names of the coordinates before d. ROW is an expression for the row of the tables of
// cosines and sines; without one they are by batch and step. With IN_PARTS it counts from where the part of a sequence begins.
#if ROW
#if MAY_BE_EMPTY
  if ($rows == 0u) { return $out_t(); }
#end
#if IN_PARTS
  let row = element_of(#(ROW) + part_at(batch), $rows);
#else
  let row = element_of(#(ROW), $rows);
#end
#end
  let v = x_at(#[#(AXIS#k) for k 3], d);
  if (d >= 2u * $half) { return v; }
#if INTERLEAVED
  let k = d / 2u;
  let second = (d & 1u) == 1u;
  let other = d ^ 1u;
#else
  let second = d >= $half;
  let k = select(d, d - $half, second);
  let other = select(d + $half, k, second);
#end
  let c = cosines_at(#("row" if ROW else "batch, step"), k);
  let s = sines_at(#("row" if ROW else "batch, step"), k);
  let u = x_at(#[#(AXIS#k) for k 3], other);
  return select(c * v - s * u, s * u + c * v, second);
