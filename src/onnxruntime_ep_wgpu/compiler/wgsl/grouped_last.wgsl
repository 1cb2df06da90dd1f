// Convolution in groups of an image whose channels are last: an invocation computes COLUMNS positions, beside each other in a row, of
// four channels of the result, from the channels of their group, four at a time. What a row of taps reads of the image is loaded
// once: the columns for which USED_X#x is true. Neighbouring invocations have neighbouring channels, so that they load and store
// runs of them.
//
// What lies outside of the image is zero after it was loaded from its edge: all loads of a row are under way at the same time then.
fn pixel(image: u32, channel: u32, y: u32, x: u32) -> vec4<$y_t> {
  return select(vec4<$y_t>(), x_at4(image, y, min(x, $width - 1u), channel), x < $width);
}

fn kernel(w: u32, lane: u32) {
  let linear = w * $WG + lane;
  if (linear >= $blocks) { return; }
  let block = linear / $fours;
  let feature = (linear - block * $fours) * 4u;
  let first = feature / $per_group * $channels;
  let image = block / $items;
  let item = block - image * $items;
  let row = item / $strips;
  let column = item % $strips * $COLUMNS;
  let top = row * $STRIDE_Y - $pad_y;
  let left = column * $STRIDE_X - $pad_x;
#for x SPAN_X
#if USED_X#x
  let x#x = left + #xu;
#end
#end
#for c COLUMNS
  var s#c = vec4<$y_t>();
#end
  for (var tap = 0u; tap < $KERNEL_Y * $KERNEL_X; tap += $KERNEL_X) {
    let y = top + tap / $KERNEL_X * $DILATION_Y;
    if (y < $height) {
      for (var channel = 0u; channel < $channels; channel += 4u) {
#for x SPAN_X
#if USED_X#x
        let v#x = pixel(image, first + channel, y, x#x);
#end
#end
        // Written out, because a loop over what is in registers is not unrolled by every shader compiler.
#for t KERNEL_X
        {
#for e 4
          let w#e = w_at4(tap + #tu, channel + #eu, feature);
#end
#for c COLUMNS
          s#c += #[v#(#c * STRIDE_X + #t * DILATION_X)[#e] * w#e for e 4 by +];
#end
        }
#end
      }
    }
  }
#for c COLUMNS
  if (column + #cu < $out_width) { y_put4(image, row * $out_width + column + #cu, feature, s#c); }
#end
}
