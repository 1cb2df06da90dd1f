// The position of an element of an image under the map theta, x first. ALIGNED: -1 and 1 are the centres of corner elements.
  var total = theta_at(image, c, $RANK);
#for k RANK
  let place#k = select((2f * f32(at#k) + 1f) / f32($out#k) - 1f, select(2f * f32(at#k) / (f32($out#k) - 1f) - 1f, 1f, $out#k == 1u), $ALIGNED);
  total += theta_at(image, c, $RANK - 1u - #ku) * place#k;
#end
  return total;
