// Loops over the taps `t#k` of a window, at positions `i#k` of the image. The including text closes the loops. A position before
// the beginning wraps to a number above every extent, so that one comparison detects the padding on both sides.
#for k RANK
  for (var t#k = 0u; t#k < $KERNEL#k; t#k++) {
    let i#k = at#k * $STRIDE#k + t#k * $DILATION#k - $begin#k;
#if LEAVES#k
    if (i#k >= $in#k) { continue; }
#end
#end
