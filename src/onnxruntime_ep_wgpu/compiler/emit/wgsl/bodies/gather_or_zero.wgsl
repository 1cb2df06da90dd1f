// An element of x at the place along an axis that an index says; negative ones count from the end, and outside there are zeros.
  let n = indices_at(picked);
  let i = select(n, n + i32($extent), n < 0);
  if (i < 0 || i >= i32($extent)) { return 0f; }
  return x_at(outer, u32(i), inner);
