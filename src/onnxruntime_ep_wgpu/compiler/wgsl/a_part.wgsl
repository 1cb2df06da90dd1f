#include before_end
// Four elements of row m of a from column k on.
fn a_part(batch: u32, m: u32, k: u32) -> vec4<$y_t> {
  if (k >= $k) { return vec4<$y_t>(); }
  return before_end(a_at4(batch, m, k), k);
}
