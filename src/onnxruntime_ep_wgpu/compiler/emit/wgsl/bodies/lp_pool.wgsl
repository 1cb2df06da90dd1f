// The P-norm of a window.
  var total = 0f;
#include bodies/taps
  let v = abs(x_at(image, channel, #[i#k for k RANK]));
#if P == 1
  total += v;
#end
#if P == 2
  total += v * v;
#end
#if P not in (1, 2)
  total += pow_f32(v, #(P)f);
#end
#for k RANK
  }
#end
#if P == 1
  return total;
#end
#if P == 2
  return sqrt(total);
#end
#if P not in (1, 2)
  return pow_f32(total, #(1 / P)f);
#end
