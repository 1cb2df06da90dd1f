// The largest element of a window; NaN counts as the largest.
  var best = $LOWEST;
#include bodies/taps
  best = $LARGER(x_at(image, channel, #[i#k for k RANK]), best);
#for k RANK
  }
#end
  return best;
