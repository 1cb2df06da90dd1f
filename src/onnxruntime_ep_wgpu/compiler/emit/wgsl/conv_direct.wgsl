// 2D convolution without workgroup memory. An invocation computes 8 channels x PIXELS output pixels. Its pixels are 8 apart, so
// that neighbouring invocations read neighbours. Positions and bounds are computed once per tap, not once per channel. Weights
// are read as (group, tap, channel, output channel), so that four output channels are one load.
var<workgroup> results: array<vec4<$y_t>, $PIXELS * 16u>;

fn kernel(w: u32, lane: u32) {
  let first = (w % $tiles) * (8u * $PIXELS) + lane;
  let rest = w / $tiles;
  let co = (rest % $channel_tiles) * 8u;
  let group = rest / $channel_tiles % $groups;
  let n = rest / ($channel_tiles * $groups);
  let co0 = min(co, ($outputs - 1u) / 4u * 4u);
  let co1 = min(co + 4u, ($outputs - 1u) / 4u * 4u);
  var origin: array<vec2u, $PIXELS>;  // row and column of tap (0, 0), negative in the padding (wraps)
  for (var j = 0u; j < $PIXELS; j++) {
    let pixel = min(first + j * 8u, $pixels - 1u);
    origin[j] = vec2u(pixel / $out_width * $STRIDE_Y - $pad_y, pixel % $out_width * $STRIDE_X - $pad_x);
  }
  var sum0: array<vec4<$y_t>, $PIXELS>;
  var sum1: array<vec4<$y_t>, $PIXELS>;
  // Zeros that no driver removes, as in `conv_taps`.
  for (var j = 0u; j < $PIXELS; j++) {
    sum0[j] = vec4<$y_t>($y_t(hidden_zero));
    sum1[j] = sum0[j];
  }
  for (var tap = 0u; tap < $TAPS; tap++) {
    let step = vec2u(tap / $TAPS_X * $DILATION_Y, tap % $TAPS_X * $DILATION_X);
    var at: array<u32, $PIXELS>;
    var inside: array<bool, $PIXELS>;
    for (var j = 0u; j < $PIXELS; j++) {
      let p = origin[j] + step;
      inside[j] = p.x < $height && p.y < $width;
      at[j] = select(0u, p.x * $width + p.y, inside[j]);
    }
    for (var c = 0u; c < $channels; c++) {
      let w0 = w_at4(group, tap, c, co0);
      let w1 = w_at4(group, tap, c, co1);
      for (var j = 0u; j < $PIXELS; j++) {
        let v = select($y_t(), x_at(n, group * $channels + c, at[j]), inside[j]);
        sum0[j] += v * w0;
        sum1[j] += v * w1;
      }
    }
  }
  // Results pass through workgroup memory to one loop, so that the text has the fused maps once, not once per element.
  for (var j = 0u; j < $PIXELS; j++) {
    results[(j * 8u + lane) * 2u] = sum0[j];
    results[(j * 8u + lane) * 2u + 1u] = sum1[j];
  }
  workgroupBarrier();
  for (var t = lane; t < $PIXELS * 64u; t += 8u) {
    let channel = t / ($PIXELS * 8u);
    let pixel = t % ($PIXELS * 8u);
    if (co + channel < $outputs && first - lane + pixel < $pixels) {
      y_put(n, group * $outputs + co + channel, first - lane + pixel, results[pixel * 2u + channel / 4u][channel % 4u]);
    }
  }
}
