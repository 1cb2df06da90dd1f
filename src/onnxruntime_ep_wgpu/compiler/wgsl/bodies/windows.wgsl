// An element of the matrix of windows that a convolution multiplies, of channels and taps by positions; zeros in the padding.
  let channel#(RANK) = row;
#for k RANK down
  let channel#k = channel#(#k + 1) / $KERNEL#k;
  let t#k = channel#(#k + 1) - channel#k * $KERNEL#k;
#end
  let place#(RANK) = column;
#for k RANK down
#if #k
  let place#k = place#(#k + 1) / $out#k;
  let at#k = place#(#k + 1) - place#k * $out#k;
#else
  let at#k = place#(#k + 1);
#end
#end
  // One test for all axes: a load waits for one branch.
  var outside = false;
#for k RANK
  let i#k = at#k * $STRIDE#k + t#k * $DILATION#k - $begin#k;
#if LEAVES#k
  outside = outside | (i#k >= $in#k);
#end
#end
  if (outside) { return $out_t(); }
  return x_at(image, channel0, #[i#k for k RANK]);
