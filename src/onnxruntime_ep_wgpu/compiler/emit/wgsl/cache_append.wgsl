// Stores rows of every head in caches, from row `past` of each sequence on. Rows beyond the end of a cache are dropped. Several
// parts are stored one after the other: keys, values, and queries, which are not cached. Each invocation stores four elements.
fn kernel(w: u32, lane: u32) {
  var i = w * $WG + lane;
#for p PARTS
  if (i < $fours#p) {
    let d = i % $size4_#p * 4u;
    let step = i / $size4_#p % $steps;
    let row = i / ($size4_#p * $steps);
    let batch = row / $heads#p;
    var at = i32(step);
    if ($CACHE#p) { at += past_at(batch); }
    if (at >= 0 && at < i32($rows#p)) {
      y#p_put4(batch, row % $heads#p, u32(at), d, new#p_at4(batch, row % $heads#p, step, d));
    }
    return;
  }
  i -= $fours#p;
#end
}
