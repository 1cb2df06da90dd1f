// The places `i#k` of the image that taps `t#k` of a window have, and what pads it for those in the padding: one test for all axes, so that
// a load waits for one branch.
  var outside = false;
#for k RANK
  let i#k = at#k * $STRIDE#k + t#k * $DILATION#k - $begin#k;
#if LEAVES#k
  outside = outside | (i#k >= $in#k);
#end
#end
  if (outside) { return $padding; }
