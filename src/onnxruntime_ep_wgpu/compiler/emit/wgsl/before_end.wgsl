// Four elements along k from column `k` on, with zeros past the end of k, whatever the memory contains there.
fn before_end(v: vec4<$y_t>, k: u32) -> vec4<$y_t> {
  if ($K_WHOLE) { return v; }
  if ($K_FOURS) { return select(vec4<$y_t>(), v, k < $k); }
  return select(vec4<$y_t>(), v, vec4u(k, k + 1u, k + 2u, k + 3u) < vec4u($k));
}
