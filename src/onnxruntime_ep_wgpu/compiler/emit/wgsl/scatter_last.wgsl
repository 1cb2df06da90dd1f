// The number of the last update of each element of a line. An invocation has one update. If several update one element, the
// highest number remains, so results do not depend on timing. Elements without an update are unchanged.
fn kernel(w: u32, lane: u32) {
  let i = w * $WG + lane;
  if (i >= $updates) { return; }
  let after = i % $after;
  let n = i / $after % $count;
  let before = i / ($after * $count);
  let at = keys_at(before, n, after);
  if (at >= 0 && at < i32($extent)) { y_max(before, u32(at), after, i32(n)); }
}
