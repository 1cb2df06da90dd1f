// An element of x at the index along an axis, or zero outside. Negative indices count from the end.
  let n = indices_at(picked);
  let i = select(n, n + i32($extent), n < 0);
  if (i < 0 || i >= i32($extent)) { return 0f; }
  return x_at(outer, u32(i), inner);
