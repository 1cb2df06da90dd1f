// The weighted sum of TAPS elements of a sequence, the last one at this position. Up to LENGTH elements before it are in the
// past.
#default BIAS has("bias")
#if BIAS
  var sum = bias_at(c);
#else
  var sum = 0f;
#end
  for (var j = 0u; j < $TAPS; j++) {
    let p = t + j * $DILATION;
    var v = 0f;
    if (p < $LENGTH) { v = past_at(n, p, c); } else { v = x_at(n, p - $LENGTH, c); }
    sum += weight_at(c, j) * v;
  }
  return sum;
