#default SCALED has("squares")
#if SCALED
// The factor of the only row of a, which makes the mean of its squares 1: what an invocation sums of these, and what follows from
// all sums. The kernel that stored a has summed squares of four elements each.
fn a_squares(lane: u32) -> f32 {
  var total = 0f;
  for (var k = lane * 4u; k < $k / 4u; k += $WG * 4u) { total += dot(squares_at4(0u, k), vec4f(1f)); }
  return total;
}

fn a_scale(squares: f32) -> f32 { return 1f / sqrt(squares / f32($k) + $EPSILON); }
#end
