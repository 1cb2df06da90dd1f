// Depthwise 2D convolution. An invocation computes ROWS x COLUMNS outputs of one plane. It loads each input element of that block
// once: in rows #y with USED_Y#y, and in columns with USED_X#x. SHARED: the whole workgroup uses the weights of one plane, so an
// adapter can load them once.
fn pixel(image: u32, channel: u32, y: u32, x: u32, inside: bool) -> $y_t {
  return select($y_t(), x_at(image, channel, select(0u, y, inside), select(0u, x, inside)), inside);
}

fn store(image: u32, feature: u32, y: u32, x: u32, value: $y_t) {
  if (y < $out_height && x < $out_width) { y_put(image, feature, y * $out_width + x, value); }
}

fn kernel(w: u32, lane: u32) {
  let linear = w * $WG + lane;
  let plane = select(linear / $items, w / $tiles, $SHARED);
  let item = select(linear % $items, w % $tiles * $WG + lane, $SHARED);
  if (plane >= $planes || item >= $items) { return; }
  let image = plane / $features;
  let feature = plane % $features;
  let channel = feature / ($features / $channels);
  let row = item / $strips * $ROWS;
  let column = item % $strips * $COLUMNS;
  let top = row * $STRIDE_Y - $pad_y;
  let left = column * $STRIDE_X - $pad_x;
  let height = $height;
  let width = $width;
#for t KERNEL_Y * KERNEL_X
  let w#t = w_at(feature, #tu);
#end
#for r ROWS
#for c COLUMNS
  var s#r_#c = $y_t(hidden_zero);  // as in `conv_taps`
#end
#end
#include depthwise_sums
#for r ROWS
#for c COLUMNS
  store(image, feature, row + #ru, column + #cu, s#r_#c);
#end
#end
}
