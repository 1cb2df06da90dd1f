// Whether a token may see a key of its sequence: one that lies in a page, of those up to the last, with CAUSAL up to the token, and
// with a WINDOW that is not negative the last so many of the token.
  let last = #("position_at(batch)" if CAUSAL else "ends_at(batch) - 1");
#if WINDOW >= 0
  if (i32(j) <= position_at(batch) - #(WINDOW)) { return false; }
#end
  return i32(j) <= last && rows_at(u32(sequence_at(batch)), j) >= 0;
