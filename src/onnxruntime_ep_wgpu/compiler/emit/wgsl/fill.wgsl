// Fills parts of a tensor, each with one number. Each invocation stores one element.
fn kernel(w: u32, lane: u32) {
  var i = w * $WG + lane;
#for p STRIPS
  if (i < $size#p) {
    y#p_put(i, fill#p_at(0u));
    return;
  }
  i -= $size#p;
#end
}
