// Depthwise 2D convolution of a channels-last image. An invocation computes ROWS x COLUMNS positions of four channels. It loads
// each input element of that block once: in rows #y with USED_Y#y, and in columns with USED_X#x. Neighbouring invocations have
// neighbouring channels, so that they load and store contiguous runs.
fn pixel(image: u32, channel: u32, y: u32, x: u32, inside: bool) -> vec4<$y_t> {
  if (!inside) { return vec4<$y_t>(); }
  return x_at4(image, y, x, channel);
}

fn store(image: u32, y: u32, x: u32, channel: u32, value: vec4<$y_t>) {
  if (y < $out_height && x < $out_width) { y_put4(image, y * $out_width + x, channel, value); }
}

fn kernel(w: u32, lane: u32) {
  let linear = w * $WG + lane;
  if (linear >= $blocks) { return; }
  let block = linear / $fours;
  let channel = (linear - block * $fours) * 4u;
  let image = block / $items;
  let item = block - image * $items;
  let row = item / $strips * $ROWS;
  let column = item % $strips * $COLUMNS;
  let top = row * $STRIDE_Y - $pad_y;
  let left = column * $STRIDE_X - $pad_x;
  let height = $height;
  let width = $width;
#for t KERNEL_Y * KERNEL_X
  let w#t = w_at4(#tu, 0u, channel);
#end
#for r ROWS
#for c COLUMNS
  var s#r_#c = vec4<$y_t>($y_t(hidden_zero));  // as in `conv_taps`
#end
#end
#include depthwise_sums
#for r ROWS
#for c COLUMNS
  store(image, row + #ru, column + #cu, channel, s#r_#c);
#end
#end
}
