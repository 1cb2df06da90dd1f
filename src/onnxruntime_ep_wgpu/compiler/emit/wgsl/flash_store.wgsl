// Stores element d of a result, or of the result of a part of the keys.
fn store(batch: u32, row: u32, split: u32, d: u32, v: f32) {
#if SPLIT
  y_put(batch, row, split, d, v);
#end
#if WHOLE
  if ($VALUES_FIRST) { y_put(batch, d, row, v); } else { y_put(batch, row, d, v); }
#end
}
