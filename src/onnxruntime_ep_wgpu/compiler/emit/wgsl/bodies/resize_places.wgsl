// The position `place#k` in the input of the output coordinate `o#k`, along each axis that is PLACED, except axes that repeat
// elements FACTOR0 times. SCALE0 is output per input, 0 for the ratio of the extents. START0 and END0 are the region of interest
// as parts of the extent.
#for k RANK
#if PLACED#k and not FACTOR#k
#if MODE not in ("align_corners", "tf_crop_and_resize")
#if SCALE#k
  let scale#k = #(SCALE#k)f;
#else
  let scale#k = quotient_f32(f32($out#k), f32($in#k));
#end
#end
#if MODE == "half_pixel"
  let place#k = quotient_f32(f32(o#k) + 0.5f, scale#k) - 0.5f;
#end
#if MODE == "pytorch_half_pixel"
  let place#k = select(0f, quotient_f32(f32(o#k) + 0.5f, scale#k) - 0.5f, $out#k > 1u);
#end
#if MODE == "half_pixel_symmetric"
  let middle#k = 0.5f * f32($in#k) * (1f - quotient_f32(f32($out#k), scale#k * f32($in#k)));
  let place#k = middle#k + quotient_f32(f32(o#k) + 0.5f, scale#k) - 0.5f;
#end
#if MODE == "asymmetric"
  let place#k = quotient_f32(f32(o#k), scale#k);
#end
#if MODE == "tf_half_pixel_for_nn"
  let place#k = quotient_f32(f32(o#k) + 0.5f, scale#k);
#end
#if MODE == "align_corners"
  let place#k = select(quotient_f32(f32(o#k) * (f32($in#k) - 1f), f32($out#k) - 1f), 0f, $out#k == 1u);
#end
#if MODE == "tf_crop_and_resize"
  let last#k = f32($in#k) - 1f;
  let step#k = f32(o#k) * #(END#k - START#k)f * last#k / (f32($out#k) - 1f);
#if START#k == 0 and END#k == 1
  // In f32, the product for a long axis is not exact.
  let begun#k = select(step#k, f32(o#k), $in#k == $out#k);
#else
  let begun#k = #(START#k)f * last#k + step#k;
#end
  let place#k = select(#((START#k + END#k) / 2)f * last#k, begun#k, $out#k > 1u);
  if (place#k < 0f || place#k > last#k) { return $out_t(#(EXTRAPOLATION)f); }
#end
#end
#end
