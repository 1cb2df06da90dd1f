// The position of a token in its sequence or, with LAST, the number of keys of that sequence. The result is -1, or 0 keys, if the
// rows of the sequence do not fit into its pages. The same holds if there is no sequence.
  let s = sequence_at(t);
  if (s >= i32($batch)) { return #("0i" if LAST else "-1i"); }
  let past = past_at(u32(s));
  let begin = starts_at(u32(s));
  let end = ends_at(u32(s));
  if (past < 0 || begin < 0 || end < begin || past > i32($most) - (end - begin)) { return #("0i" if LAST else "-1i"); }
#if LAST
  return past + end - begin;
#else
  return past + i32(t) - begin;
#end
