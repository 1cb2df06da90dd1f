#default SCALED has("squares")
#if SCALED
// The factor that normalises the only row of a to a mean square of 1. Each invocation accumulates a part of the squares; the
// factor follows from the total. The kernel that stored a also stored sums of squares of four elements each.
fn a_squares(lane: u32) -> f32 {
  var total = 0f;
  for (var k = lane * 4u; k < $k / 4u; k += $WG * 4u) { total += dot(squares_at4(0u, k), vec4f(1f)); }
  return total;
}

fn a_scale(squares: f32) -> f32 { return 1f / sqrt(squares / f32($k) + $EPSILON); }
#end
