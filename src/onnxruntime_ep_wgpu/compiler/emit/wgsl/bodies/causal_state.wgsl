// An element of the last LENGTH positions of a sequence after each of its last SLOTS tokens. Zeros before the first token.
#if SLOTS > 1
  if (slot + $tokens + 1u <= $SLOTS) { return 0f; }
#end
  let p = slot + $tokens + 1u - $SLOTS + t;
  if (p < $LENGTH) { return past_at(n, p, c); }
  return x_at(n, p - $LENGTH, c);
