// The leaf of a tree for a row (LEAVES), or the weights of the leaves of EACH trees of a target, combined by COMBINE.
//
// A node has four words. The first has a feature, its comparison, and whether NaN counts as true. The second has the bits of the
// threshold. The others have the successors: a node, or the inverted number of a leaf. The depth bounds the path even through
// malformed nodes.
#if LEAVES
  var node = roots_at(tree);
#else
  var total = 0f;
  for (var k = 0u; k < $EACH; k++) {
    let tree = group * $EACH + k;
    if (tree >= $count) { break; }
    var node = roots_at(score * $count + tree);
#end
    for (var step = 0u; step < $depth && node >= 0; step++) {
      let at = u32(node);
      let test = u32(nodes_at(at, 0u));
      let value = x_at(row, test >> 4u);
      let split = bitcast<f32>(nodes_at(at, 1u));
#if MODE >= 0
      let holds = #(("value <= split", "value < split", "value >= split", "value > split", "value == split", "value != split")[MODE]);
#else
      let mode = test & 7u;
      let upward = select(value < split, value <= split, mode == 0u);
      let downward = select(value > split, value >= split, mode == 2u);
      let ordered = select(downward, upward, mode < 2u);
      let holds = select(ordered, select(value != split, value == split, mode == 4u), mode >= 4u);
#end
      let missing = (test & 8u) != 0u;
      node = nodes_at(at, select(3u, 2u, select(holds, missing, isnan_f32(value))));
    }
#if LEAVES
  return ~node;
#else
    let found = weights_at(u32(~node));
    total = select(#(COMBINE), found, k == 0u);
  }
  return total;
#end
