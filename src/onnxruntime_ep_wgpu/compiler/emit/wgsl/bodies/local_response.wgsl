// x divided by a power of the sum of squares over SIZE neighbouring channels.
  let first = channel - min(channel, #((SIZE - 1) // 2)u);
  let end = min(channel + #(SIZE // 2 + 1)u, $channels);
  var total = 0f;
  for (var c = first; c < end; c++) { let v = x_at(image, c, inner); total += v * v; }
  return x_at(image, channel, inner) / pow_f32(#(BIAS)f + #(ALPHA / SIZE)f * total, #(BETA)f);
