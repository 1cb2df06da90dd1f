// Matrix product y = a b: a workgroup computes TILE_M x 64 elements from tiles in workgroup memory, an invocation
// ROWS x 4 of them. Out-of-range elements of a tile are 0 and out-of-range results are not stored.
var<workgroup> a_tile: array<f32, $TILE_M * $TILE_K>;  // k-major
var<workgroup> b_tile: array<vec4f, 16u * $TILE_K>;

fn kernel(w: u32, lane: u32) {
  let column = (w % $tiles_n) * 64u;
  let row = (w / $tiles_n % $tiles_m) * $TILE_M;
  let batch = w / ($tiles_n * $tiles_m);
  let tx = lane % 16u;
  let ty = lane / 16u;
  var sum: array<vec4f, $ROWS>;
  for (var k0 = 0u; k0 < $k; k0 += $TILE_K) {
    for (var t = lane; t < $TILE_M * $TILE_K; t += $WG) {
      let m = row + t / $TILE_K;
      let k = k0 + t % $TILE_K;
      var v = 0f;
      if (m < $m && k < $k) { v = a_at(batch, m, k); }
      a_tile[(t % $TILE_K) * $TILE_M + t / $TILE_K] = v;
    }
    for (var t = lane; t < 16u * $TILE_K; t += $WG) {
      let n = column + (t % 16u) * 4u;
      let k = k0 + t / 16u;
      var v = vec4f();
      if (k < $k) {
        if (n < $n) { v.x = b_at(batch, k, n); }
        if (n + 1u < $n) { v.y = b_at(batch, k, n + 1u); }
        if (n + 2u < $n) { v.z = b_at(batch, k, n + 2u); }
        if (n + 3u < $n) { v.w = b_at(batch, k, n + 3u); }
      }
      b_tile[t] = v;
    }
    workgroupBarrier();
    for (var k = 0u; k < $TILE_K; k++) {
      let b = b_tile[k * 16u + tx];
      for (var i = 0u; i < $ROWS; i++) { sum[i] += a_tile[k * $TILE_M + ty * $ROWS + i] * b; }
    }
    workgroupBarrier();
  }
  for (var i = 0u; i < $ROWS; i++) {
    let m = row + ty * $ROWS + i;
    let n = column + tx * 4u;
    if (m < $m) {
      if (n < $n) { y_put(batch, m, n, sum[i].x); }
      if (n + 1u < $n) { y_put(batch, m, n + 1u, sum[i].y); }
      if (n + 2u < $n) { y_put(batch, m, n + 2u, sum[i].z); }
      if (n + 3u < $n) { y_put(batch, m, n + 3u, sum[i].w); }
    }
  }
}
