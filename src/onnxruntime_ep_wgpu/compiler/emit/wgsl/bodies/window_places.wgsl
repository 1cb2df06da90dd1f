// The positions `i#k` in the image of the taps `t#k` of a window, and the padding value outside. One test for all axes, so that a
// load waits for only one branch.
  var outside = false;
#for k RANK
  let i#k = at#k * $STRIDE#k + t#k * $DILATION#k - $begin#k;
#if LEAVES#k
  outside = outside | (i#k >= $in#k);
#end
#end
  if (outside) { return $padding; }
