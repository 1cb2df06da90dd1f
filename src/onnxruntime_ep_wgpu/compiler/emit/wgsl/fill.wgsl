// Parts of a tensor, each in its place, are filled with one number each. An element in each invocation.
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
