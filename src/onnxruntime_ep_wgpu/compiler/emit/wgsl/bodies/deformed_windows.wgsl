// An element of the windows of a deformable convolution. Each tap has its own offsets, in elements along each axis. The image is
// interpolated linearly there, with zeros outside. WEIGHTED: a mask scales the result. `$share` channels share their offsets.
#default WEIGHTED has("mask")
  let part = channel / $share;
  let tap#(RANK) = tap;
  let place#(RANK) = place;
#for k RANK down
  let tap#k = tap#(#k + 1) / $KERNEL#k;
  let t#k = tap#(#k + 1) - tap#k * $KERNEL#k;
  let place#k = place#(#k + 1) / $out#k;
  let at#k = place#(#k + 1) - place#k * $out#k;
#end
#for k RANK
  let begin#k = i32(at#k * $STRIDE#k + t#k * $DILATION#k) - i32($begin#k);
  let moved#k = f32(begin#k) + f32(offsets_at(image, part, tap, #ku, place));
  // A position that is NaN counts as outside.
  let p#k = select(clamp(moved#k, -2f, f32($in#k) + 1f), -2f, isnan_f32(moved#k));
  let low#k = i32(floor(p#k));
  let past#k = p#k - floor(p#k);
#end
  var total = 0f;
#for k RANK
  for (var c#k = 0; c#k < 2; c#k++) {
    let i#k = low#k + c#k;
    if (i#k < 0 || i#k >= i32($in#k)) { continue; }
    let w#k = select(1f - past#k, past#k, c#k == 1);
#end
    total += #[w#k for k RANK by *] * f32(x_at(image, channel, #[u32(i#k) for k RANK]));
#for k RANK
  }
#end
#if WEIGHTED
  total *= f32(mask_at(image, part, tap, place));
#end
  return $out_t(total);
