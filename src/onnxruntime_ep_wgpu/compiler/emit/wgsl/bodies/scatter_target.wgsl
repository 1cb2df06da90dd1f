// The number of the slice over DEPTH axes that an update belongs to, or -1 if an index is out of range.
  var slice = 0i;
#for k DEPTH
  let k#k = indices_at(n, #ku);
  let i#k = select(k#k, k#k + i32($extent#k), k#k < 0);
  if (i#k < 0 || i#k >= i32($extent#k)) { return -1i; }
  slice = slice * i32($extent#k) + i#k;
#end
  return slice;
