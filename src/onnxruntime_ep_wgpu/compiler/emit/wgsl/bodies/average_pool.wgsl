// The mean of a window over the image; with COUNT_PADDING also over the padding, which is zeros. The sum begins with a zero that
// no driver removes: otherwise a sum of minus zeros differs from the CPU provider's.
  var total = float_bits(0u);
#if PADDED
  var count = 0f;
#end
#if COUNT_PADDING
#for k RANK
  for (var t#k = 0u; t#k < $KERNEL#k; t#k++) {
    let p#k = at#k * $STRIDE#k + t#k * $DILATION#k;
    let i#k = p#k - $begin#k;
#if LEAVES#k
    if (p#k >= $padded#k) { continue; }
#end
#end
  count += 1f;
  if (#[i#k < $in#k for k RANK by &&]) { total += x_at(image, channel, #[i#k for k RANK]); }
#else
#include bodies/taps
  total += x_at(image, channel, #[i#k for k RANK]);
#if PADDED
  count += 1f;
#end
#end
#for k RANK
  }
#end
#if PADDED
  return total / max(count, 1f);  // a window may be outside of the image
#else
  return total / #(TAPS)f;
#end
