// The flat index in x of the largest element of a window, or -1 for an empty window. AXIS0 is the outermost spatial axis in that
// index, AXIS1 the next.
  var best = $LOWEST;
  var at = -1i;
#include bodies/taps
  let v = x_at(image, channel, #[i#k for k RANK]);
#if FLOATS
  let above = v > best || (isnan_f32(v) && !isnan_f32(best));
#else
  let above = v > best;
#end
  if (at < 0 || above) {
    best = v;
    var place = image * $channels + channel;
#for k RANK
    place = place * $in#(AXIS#k) + i#(AXIS#k);
#end
    at = i32(place);
  }
#for k RANK
  }
#end
  return at;
