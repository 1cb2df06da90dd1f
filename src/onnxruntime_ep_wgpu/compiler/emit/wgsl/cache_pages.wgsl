// Stores rows of every head of a token in paged caches, at the slot of the token. Tokens without a slot are dropped. Several
// parts are stored one after the other: keys and values. Each invocation stores four elements.
fn kernel(w: u32, lane: u32) {
  var i = w * $WG + lane;
#for p PARTS
  if (i < $fours#p) {
    let d = i % $size4_#p * 4u;
    let row = i / $size4_#p;
    let token = row / $heads#p;
    let slot = slot_at(token);
    if (slot >= 0 && u32(slot) < $slots#p) {
      y#p_put4(u32(slot), row % $heads#p, d, new#p_at4(token, row % $heads#p, d));
    }
    return;
  }
  i -= $fours#p;
#end
}
