// The initial content of a cache that cannot be updated in place: rows of x, then zeros. Each invocation stores four elements.
fn kernel(w: u32, lane: u32) {
  let i = w * $WG + lane;
  if (i >= $fours) { return; }
  let d = i % $size4 * 4u;
  let row = i / $size4;
  let at = row % $total;
  if (at < $past) {
    y_put4(row / $total, at, d, x_at4(row / $total, at, d));
  } else {
    y_put4(row / $total, at, d, vec4<$y_t>());
  }
}
