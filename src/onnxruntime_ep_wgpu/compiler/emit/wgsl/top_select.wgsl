// The positions of the k largest keys of a row, by a workgroup. A digit of 8 bits at a time, the k-th largest key is found
// from counts; then the row is walked once more in order to pick the keys above it and the first of its equals.
var<workgroup> counts: array<atomic<u32>, 256>;
var<workgroup> sums: array<u32, $WG>;
var<workgroup> found: array<u32, 2>;
var<workgroup> keys: array<$x_t, $K>;
var<workgroup> places: array<u32, $K>;

fn kernel(w: u32, lane: u32) {
  let row = w;
  var limit = nothing();
  var wanted = $K;
  for (var step = 0u; step < $DIGITS; step++) {
    let shift = 8u * ($DIGITS - 1u - step);
    for (var d = lane; d < 256u; d += $WG) { atomicStore(&counts[d], 0u); }
    workgroupBarrier();
    for (var i = lane; i < $columns; i += $WG) {
      let key = x_at(row, i);
      if (begins_alike(key, limit, shift + 8u)) { atomicAdd(&counts[digit(key, shift)], 1u); }
    }
    workgroupBarrier();
    if (lane == 0u) {
      var left = wanted;
      var d = 255u;
      while (d > 0u && atomicLoad(&counts[d]) < left) {
        left -= atomicLoad(&counts[d]);
        d--;
      }
      found[0] = d;
      found[1] = left;
    }
    workgroupBarrier();
    limit = extended(limit, found[0], shift);
    wanted = found[1];
  }
  // Chunks in order; within one, the elements above the limit (low half) and equal to it (high half) are counted by a scan.
  var above = 0u;
  var equals = 0u;
  for (var start = 0u; start < $columns; start += $WG) {
    let i = start + lane;
    let key = x_at(row, min(i, $columns - 1u));
    let is_above = i < $columns && larger(key, limit);
    let is_equal = i < $columns && same(key, limit);
    let mine = select(0u, 1u, is_above) | select(0u, 0x10000u, is_equal);
    var total = mine;
    workgroupBarrier();
    sums[lane] = total;
    for (var n = 1u; n < $WG; n *= 2u) {
      workgroupBarrier();
      let before = select(0u, sums[lane - min(n, lane)], lane >= n);
      workgroupBarrier();
      total += before;
      sums[lane] = total;
    }
    workgroupBarrier();
    let higher = above + ((total - mine) & 0xffffu);
    let alike = equals + ((total - mine) >> 16u);
    if (is_above || (is_equal && alike < wanted)) {
      let slot = higher + min(alike, wanted);
      keys[slot] = key;
      places[slot] = i;
    }
    above += sums[$WG - 1u] & 0xffffu;
    equals += sums[$WG - 1u] >> 16u;
  }
  workgroupBarrier();
  for (var i = lane; i < $K; i += $WG) {
    var rank = 0u;
    for (var other = 0u; other < $K; other++) {
      if (larger(keys[other], keys[i]) || (other < i && same(keys[other], keys[i]))) { rank++; }
    }
    y_put(row, rank, i32(places[i]));
  }
}
