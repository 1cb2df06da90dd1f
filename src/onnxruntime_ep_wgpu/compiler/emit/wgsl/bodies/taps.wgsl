// Loops over the taps `t#k` of a window, at the places `i#k` of the image. The including text ends the loops. Before the beginning
// a place wraps to a number above every extent, so that one comparison finds the padding on both sides.
#for k RANK
  for (var t#k = 0u; t#k < $KERNEL#k; t#k++) {
    let i#k = at#k * $STRIDE#k + t#k * $DILATION#k - $begin#k;
#if LEAVES#k
    if (i#k >= $in#k) { continue; }
#end
#end
