// An element of the matrix of windows that a convolution multiplies, with zeros in the padding. It is positions by taps and
// channels, in which the channels of a tap are neighbours; or positions by channels and taps.
#if BY_CHANNELS
  let tap#(RANK) = part / $channels;
  let channel = part - tap#(RANK) * $channels;
#else
  let tap#(RANK) = part;
#end
#for k RANK down
  let tap#k = tap#(#k + 1) / $KERNEL#k;
  let t#k = tap#(#k + 1) - tap#k * $KERNEL#k;
#end
#if BY_CHANNELS
#else
  let channel = tap0;
#end
  let place#(RANK) = position;
#for k RANK down
  let place#k = place#(#k + 1) / $out#k;
  let at#k = place#(#k + 1) - place#k * $out#k;
#end
#include bodies/window_places
  return x_at(place0, #[i#k for k RANK], channel);
