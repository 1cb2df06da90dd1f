// The largest element of a window. NaN counts as the largest, and minus zero as less than zero.
#if FLOATS
  var best = rank_f32($LOWEST);
#include bodies/taps
  best = max(best, rank_f32(x_at(image, channel, #[i#k for k RANK])));
#for k RANK
  }
#end
  return ranked_u32(best);
#else
  var best = $LOWEST;
#include bodies/taps
  best = max(best, x_at(image, channel, #[i#k for k RANK]));
#for k RANK
  }
#end
  return best;
#end
