// An element of the matrix of windows that a convolution multiplies, of channels and taps by positions. Zeros in the padding.
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
#include bodies/window_places
  return x_at(image, channel0, #[i#k for k RANK]);
