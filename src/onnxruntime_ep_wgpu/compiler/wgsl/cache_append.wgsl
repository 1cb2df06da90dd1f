// Rows x of every head, stored in a cache from row `past` of its sequence on; those that it has no place for are left out.
// Four elements in each invocation.
fn kernel(w: u32, lane: u32) {
  let i = w * $WG + lane;
  if (i >= $fours) { return; }
  let d = i % $size4 * 4u;
  let step = i / $size4 % $steps;
  let row = i / ($size4 * $steps);
  let batch = row / $heads;
  let at = past_at(batch) + i32(step);
  if (at < 0 || at >= i32($total)) { return; }
  y_put4(batch, row % $heads, u32(at), d, x_at4(batch, row % $heads, step, d));
}
