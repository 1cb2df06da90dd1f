// Whether a token sees a key of its sequence. The key must be in a page and not after the last key, with CAUSAL not after the
// token. A non-negative WINDOW limits it to so many keys up to the token.
  let last = #("position_at(batch)" if CAUSAL else "ends_at(batch) - 1");
#if WINDOW >= 0
  if (i32(j) <= position_at(batch) - #(WINDOW)) { return false; }
#end
  return i32(j) <= last && rows_at(u32(sequence_at(batch)), j) >= 0;
