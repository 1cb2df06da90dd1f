// 2D convolution with single-element loads and without a barrier, for the adapters of `matmul_registers`. An invocation
// accumulates CHANNELS channels of PIXELS pixels. Its pixels are WG apart, so that neighbouring invocations read and store
// neighbours. Positions and bounds are computed once per tap, not once per channel.
fn kernel(w: u32, lane: u32) {
  let first = w % $tiles * ($PIXELS * $WG) + lane;
  let rest = w / $tiles;
  let co = rest % $channel_tiles * $CHANNELS;
  let group = rest / $channel_tiles % $groups;
  let n = rest / ($channel_tiles * $groups);
  // Surplus channels and pixels repeat the last one and are not stored.
#for i CHANNELS
  let feature#i = group * $outputs + min(co + #iu, $outputs - 1u);
#for j PIXELS
  var sum#i_#j = $y_t(hidden_zero);  // as in `conv_taps`
#end
#end
  // Row and column of tap (0, 0), negative in the padding (wraps).
#for j PIXELS
  let pixel#j = min(first + #ju * $WG, $pixels - 1u);
  let origin#j = vec2u(pixel#j / $out_width * $STRIDE_Y - $pad_y, pixel#j % $out_width * $STRIDE_X - $pad_x);
#end
  for (var tap = 0u; tap < $TAPS; tap++) {
    let step = vec2u(tap / $TAPS_X * $DILATION_Y, tap % $TAPS_X * $DILATION_X);
#for j PIXELS
    let p#j = origin#j + step;
    let inside#j = p#j.x < $height && p#j.y < $width;
    let at#j = select(0u, p#j.x * $width + p#j.y, inside#j);
#end
    for (var c = 0u; c < $channels; c++) {
#for j PIXELS
      let v#j = select($y_t(), x_at(n, group * $channels + c, at#j), inside#j);
#end
#for i CHANNELS
      let weight#i = w_at(feature#i, c, tap);
#for j PIXELS
      sum#i_#j += v#j * weight#i;
#end
#end
    }
  }
  // The text has the maps fused into the store once.
  var sums = array<$y_t, $CHANNELS * $PIXELS>(
#for i CHANNELS
#for j PIXELS
    sum#i_#j,
#end
#end
  );
  for (var t = 0u; t < $CHANNELS * $PIXELS; t++) {
    let channel = co + t / $PIXELS;
    let pixel = first + t % $PIXELS * $WG;
    if (channel < $outputs && pixel < $pixels) { y_put(n, group * $outputs + channel, pixel, sums[t]); }
  }
}
