// Maps that read a tensor across its rows. A workgroup processes a tile of TILE x TILE elements. `loaded` returns the element at
// an index in memory; neighbouring invocations load neighbours. `made` computes and stores element `i` of the results from it,
// and from elements of other tensors at the same index; neighbouring invocations store neighbours. A row of the tile has one
// element more, so that a column is spread over all banks.
//
// A tile has one value of each of OUTER factors of the element's number.
var<workgroup> tile: array<$element, $TILE * ($TILE + 1u)>;

fn kernel(w: u32, lane: u32) {
  let column = w % $tiles * $TILE;
  let row = w / $tiles % $rows * $TILE;
  var rest = w / ($tiles * $rows);
  var begin = $begin;
  var into = 0u;
#for k OUTER down
  begin += rest % $extent#k * $stride#k;
  into += rest % $extent#k * $below#k;
  rest /= $extent#k;
#end
  let c = lane % $TILE;
  // Counts by one, which browsers can analyse.
  for (var step = 0u; step < $TILE / $ROWS; step++) {
    let r = lane / $TILE % $ROWS + step * $ROWS;
    if (row + c < $along && column + r < $last) {
      tile[r * ($TILE + 1u) + c] = loaded(begin + row + c + (column + r) * $last_stride);
    }
  }
  workgroupBarrier();
  for (var step = 0u; step < $TILE / $ROWS; step++) {
    let r = lane / $TILE % $ROWS + step * $ROWS;
    if (row + r < $along && column + c < $last) {
      let i = into + (row + r) * $along_below + column + c;
      made(i, begin + row + r + (column + c) * $last_stride, tile[c * ($TILE + 1u) + r]);
    }
  }
}
