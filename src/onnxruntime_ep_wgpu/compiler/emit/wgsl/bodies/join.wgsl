// An element of PARTS concatenated tensors.
#for k PARTS - 1
  if (axis < $end#k) { return x#k_at(outer, axis - $start#k, inner); }
#end
  return x#(PARTS - 1)_at(outer, axis - $start#(PARTS - 1), inner);
