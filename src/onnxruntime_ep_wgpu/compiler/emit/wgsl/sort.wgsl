// The positions of the elements of a row in sorted order, equal ones from left to right; the first k are the result. This is a
// bitonic sort (K. E. Batcher, Sorting networks and their applications, 1968). A dispatch sorts blocks in workgroup memory. Each
// level of the following ones merges two runs. It compares a run with the other one reversed, then the halves of the result:
// across blocks one distance after the other, within blocks all at once. Larger elements always move right. So the elements that
// a row lacks for a power of two are the last ones everywhere, and need not exist. COUNTED: the same holds for elements from
// `count` of a row on, which only the device holds. Levels of longer rows have no work then.
var<workgroup> keys: array<$x_t, $BLOCK>;
var<workgroup> places: array<u32, $BLOCK>;
#if COUNTED
var<workgroup> there: u32;
#end

fn comes_after(x: $x_t, at: u32, y: $x_t, other: u32) -> bool { return before(y, x) || (at > other && same(x, y)); }

fn kernel(w: u32, lane: u32) {
  let blocks = ($columns + $BLOCK - 1u) / $BLOCK;
  let row = w / blocks;
  let block = w % blocks;
  var level = 0u;
  var step = $repetition;
  while (step > level) {
    step -= level + 1u;
    level++;
  }
#if COUNTED
  if (lane == 0u) { there = min($columns, u32(count_at(row))); }
  let columns = workgroupUniformLoad(&there);
  if (level > 0u && ($BLOCK << (level - 1u)) >= columns && $repetition < $last) { return; }
#else
  let columns = $columns;
#end
  if (step < level) {
    let half = ($BLOCK << (level - step)) / 2u;
    let pair = block * $WG + lane;
    let begin = pair / half * 2u * half;
    let left = begin + select(pair % half, half - 1u - pair % half, step == 0u);
    let right = begin + half + pair % half;
    if (right < columns) {
      let a = u32(place_at(row, left));
      let b = u32(place_at(row, right));
      if (comes_after(x_at(row, a), a, x_at(row, b), b)) {
        place_put(row, left, i32(b));
        place_put(row, right, i32(a));
      }
    }
    return;
  }
  let first = block * $BLOCK;
#if COUNTED
  let count = select(0u, min($BLOCK, columns - first), first < columns);
#else
  let count = min($BLOCK, columns - first);
#end
  for (var k = lane; k < count; k += $WG) {
    var at = first + k;
    if (level > 0u) { at = u32(place_at(row, at)); }
    places[k] = at;
    keys[k] = x_at(row, at);
  }
  // Runs of half a size are already sorted if no element is after the first one.
  for (var size = select(2u, $BLOCK, level > 0u); size <= $BLOCK && (level > 0u || size / 2u < count); size *= 2u) {
    for (var half = size / 2u; half > 0u; half /= 2u) {
      if (half >= count) { continue; }
      workgroupBarrier();
      let begin = lane / half * 2u * half;
      let is_first = level == 0u && half == size / 2u;
      let left = begin + select(lane % half, half - 1u - lane % half, is_first);
      let right = begin + half + lane % half;
      if (right < count) {
        let key = keys[left];
        let place = places[left];
        if (comes_after(key, place, keys[right], places[right])) {
          keys[left] = keys[right];
          places[left] = places[right];
          keys[right] = key;
          places[right] = place;
        }
      }
    }
  }
  workgroupBarrier();
  for (var k = lane; k < count; k += $WG) {
    place_put(row, first + k, i32(places[k]));
    if ($repetition == $last && first + k < $k) { y_put(row, first + k, i32(places[k])); }
  }
}
