// An image interpolated at a position of the grid, which has x first in its last axis. MODE cubic is Keys' kernel with a = -0.75.
// Outside there are zeros, the border's element, or reflections, at the centres of the corner elements if ALIGNED, else at their
// edges. ALIGNED: -1 and 1 are these centres.
  var total = minus_zero();  // changes no sum
#for k RANK
  let g#k = grid_at(image, #[at#d for d RANK], $RANK - 1u - #ku);
  let p#k = clamp(select(((g#k + 1f) * f32($in#k) - 1f) * 0.5f, (g#k + 1f) * 0.5f * (f32($in#k) - 1f), $ALIGNED), -1e9f, 1e9f);
#end
#for k RANK
#if MODE == "nearest"
  {
    let i#k = i32(round(p#k));
    let w#k = 1f;
#end
#if MODE == "linear"
  for (var t#k = 0; t#k < 2; t#k++) {
    let i#k = i32(floor(p#k)) + t#k;
    let w#k = 1f - abs(p#k - floor(p#k) - f32(t#k));
#end
#if MODE == "cubic"
  for (var t#k = -1; t#k < 3; t#k++) {
    let i#k = i32(floor(p#k)) + t#k;
    let d#k = abs(p#k - floor(p#k) - f32(t#k));
    let near#k = (1.25f * d#k - 2.25f) * d#k * d#k + 1f;
    let w#k = select(((-0.75f * d#k + 3.75f) * d#k - 6f) * d#k + 3f, near#k, d#k <= 1f);
#end
#end
  var inside = true;
#for k RANK
#if PADDING == "zeros"
  let s#k = i#k;
  inside = inside && s#k >= 0 && s#k < i32($in#k);
#end
#if PADDING == "border"
  let s#k = clamp(i#k, 0, i32($in#k) - 1);
#end
#if PADDING == "reflection" and ALIGNED
  let s#k = i32(reflected(i#k, i32($in#k)));
#end
#if PADDING == "reflection" and not ALIGNED
  let s#k = i32(mirrored(i#k, i32($in#k)));
#end
#end
  if (inside) {
    total += #[w#k for k RANK by *] * x_at(image, channel, #[u32(s#k) for k RANK]);
  } else {
    total += float_bits(0u);  // makes minus zero zero, and no driver removes it
  }
#for k RANK
  }
#end
  return total;
