// The sum of all window elements that map to an element of the image. Without dilation, the taps that reach it are one stride
// apart. A position before the first window wraps to a large number, which the division would bring back into range.
  var total = float_bits(0u);  // makes sums of minus zeros zero, like the CPU provider
#for k RANK
  let from#k = at#k + $begin#k;
#if DILATION#k == 1
  for (var t#k = from#k % $STRIDE#k; t#k < $KERNEL#k; t#k += $STRIDE#k) {
    let far#k = from#k - t#k;
#else
  for (var t#k = 0u; t#k < $KERNEL#k; t#k++) {
    let far#k = from#k - t#k * $DILATION#k;
    if (far#k % $STRIDE#k != 0u) { continue; }
#end
    let i#k = far#k / $STRIDE#k;
    if (far#k > 0x7fffffffu || i#k >= $out#k) { continue; }
#end
  total += columns_at(image, channel, #[t#k for k RANK], #[i#k for k RANK]);
#for k RANK
  }
#end
  return total;
