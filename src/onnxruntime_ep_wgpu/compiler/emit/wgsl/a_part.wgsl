#include before_end
// Four elements of row m of a from column k on. Without a branch, since a load after a branch would wait for earlier loads.
fn a_part(batch: u32, m: u32, k: u32) -> vec4<$y_t> {
  if ($K_WHOLE) { return a_at4(batch, m, k); }
  return before_end(a_at4(batch, m, min(k, ($k - 1u) / 4u * 4u)), k);
}
