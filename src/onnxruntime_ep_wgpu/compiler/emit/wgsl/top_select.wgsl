// The k largest elements of a row, by one workgroup: a radix selection on unsigned keys in the same order, 8 bits at a time.
//
// 1. BOUNDED: the k-th largest of the invocations' largest keys is a lower bound. Few keys of a row reach it. This saves counting
//   the digits of the others, which most keys share.
// 2. Counts of digits give the k-th largest key, the limit. If more keys equal it than needed, counts of the digits of their
//   positions give the last one that is selected.
// 3. Keys above the limit, and selected equal keys, are collected in any order. Their ranks come from a comparison of all pairs.
var<workgroup> counts: array<atomic<u32>, 256>;
var<workgroup> sums: array<u32, 16>;
var<workgroup> found: vec3<u32>;
var<workgroup> taken: atomic<u32>;
var<workgroup> keys: array<$key_of_t, $K>;
var<workgroup> places: array<u32, $K>;

fn clear_counts(lane: u32) {
  for (var d = lane; d < 256u; d += $WG) { atomicStore(&counts[d], 0u); }
  workgroupBarrier();
}

// Among the counted keys: the digit of the last of the `wanted` largest, how many of these have it, and how many keys have it.
fn last_digit(wanted: u32, lane: u32) -> vec3<u32> {
  workgroupBarrier();
  for (var part = lane; part < 16u; part += $WG) {
    var sum = 0u;
    for (var d = 0u; d < 16u; d++) { sum += atomicLoad(&counts[16u * part + d]); }
    sums[part] = sum;
  }
  workgroupBarrier();
  if (lane == 0u) {
    var left = wanted;
    var part = 15u;
    while (part > 0u && sums[part] < left) {
      left -= sums[part];
      part--;
    }
    var d = 16u * part + 15u;
    while (d > 16u * part && atomicLoad(&counts[d]) < left) {
      left -= atomicLoad(&counts[d]);
      d--;
    }
    found = vec3<u32>(d, left, atomicLoad(&counts[d]));
  }
  return workgroupUniformLoad(&found);
}

fn kernel(w: u32, lane: u32) {
  let row = w;
  var bound = nothing();
#if BOUNDED
  if ($columns >= 4u * $WG) { // a shorter row has too few keys for each invocation
    var mine = nothing();
    for (var i = lane; i < $columns; i += $WG) {
      let key = key_of(x_at(row, i));
      if (larger(key, mine)) { mine = key; }
    }
    var rest = $K;
    for (var step = 0u; step < $DIGITS; step++) {
      let shift = 8u * ($DIGITS - 1u - step);
      clear_counts(lane);
      if (begins_alike(mine, bound, shift + 8u)) { atomicAdd(&counts[digit(mine, shift)], 1u); }
      let last = last_digit(rest, lane);
      bound = extended(bound, last.x, shift);
      rest = last.y;
    }
  }
#end
  var limit = nothing();
  var wanted = $K;
  var alike = 0u;
  for (var step = 0u; step < $DIGITS; step++) {
    let shift = 8u * ($DIGITS - 1u - step);
    clear_counts(lane);
    for (var i = lane; i < $columns; i += $WG) {
      let key = key_of(x_at(row, i));
      if (!larger(bound, key) && begins_alike(key, limit, shift + 8u)) { atomicAdd(&counts[digit(key, shift)], 1u); }
    }
    let last = last_digit(wanted, lane);
    limit = extended(limit, last.x, shift);
    wanted = last.y;
    alike = last.z;
    if (alike == wanted) { break; } // all counted keys with these leading digits are selected
  }
  if (larger(bound, limit)) { limit = bound; }
  // Positions count from the end of the row, so that the largest come first.
  var reach = 0u;
  if (alike > wanted) {
    for (var step = 0u; step < 4u; step++) {
      let shift = 24u - 8u * step;
      if ((($columns - 1u) >> shift) == 0u) { continue; }
      clear_counts(lane);
      for (var i = lane; i < $columns; i += $WG) {
        let from_end = ($columns - 1u - i) >> shift;
        if ((from_end >> 8u) == ((reach >> shift) >> 8u) && same(key_of(x_at(row, i)), limit)) {
          atomicAdd(&counts[from_end & 255u], 1u);
        }
      }
      let last = last_digit(wanted, lane);
      reach |= last.x << shift;
      wanted = last.y;
      if (last.z == wanted) { break; }
    }
  }
  if (lane == 0u) { atomicStore(&taken, 0u); }
  workgroupBarrier();
  for (var i = lane; i < $columns; i += $WG) {
    let key = key_of(x_at(row, i));
    if (larger(key, limit) || (same(key, limit) && $columns - 1u - i >= reach)) {
      let slot = atomicAdd(&taken, 1u);
      keys[slot] = key;
      places[slot] = i;
    }
  }
  workgroupBarrier();
  for (var i = lane; i < $K; i += $WG) {
    let key = keys[i];
    let place = places[i];
    var rank = 0u;
    for (var other = 0u; other < $K; other++) {
      let theirs = keys[other];
      if (larger(theirs, key) || (same(theirs, key) && places[other] < place)) { rank++; }
    }
    y_put(row, rank, i32(place));
#if VALUES
    value_put(row, rank, x_at(row, place));
#end
  }
}
