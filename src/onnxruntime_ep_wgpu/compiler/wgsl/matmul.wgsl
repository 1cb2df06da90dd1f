// Matrix product y = a b from tiles in workgroup memory: a workgroup computes TILE_M x TILE_N elements, an invocation
// 4 * ROWS4 x 4 * COLUMNS4 of them. The next tiles are fetched into registers while the present ones are multiplied.
// SLICES groups of invocations share a tile and each take their part of k, which keeps small products parallel.
const THREADS_X = $TILE_N / (4u * $COLUMNS4);
const THREADS = THREADS_X * $TILE_M / (4u * $ROWS4);  // per slice
const A_LOADS = $TILE_M * $TILE_K / 4u / THREADS;
const B_LOADS = $TILE_N * $TILE_K / 4u / THREADS;
const A_SIZE = $SLICES * $TILE_K * $TILE_M / 4u;
const B_SIZE = $SLICES * $TILE_K * $TILE_N / 4u;
const ROW_SIZE = $SLICES * THREADS * $COLUMNS4;

// While multiplying, the tile of a, per slice k-major, then that of b; afterwards one row of results per invocation.
var<workgroup> tiles: array<vec4<$y_t>, max(A_SIZE + B_SIZE, ROW_SIZE)>;

// Four elements of a row of a from column k on; zeros from the end of k on, whatever lies in memory there.
fn a_part(batch: u32, m: u32, k: u32) -> vec4<$y_t> {
  if (k >= $k) { return vec4<$y_t>(); }
  let v = a_at4(batch, m, k);
  if ($K_WHOLE) { return v; }
  return select(vec4<$y_t>(), v, vec4u(k, k + 1u, k + 2u, k + 3u) < vec4u($k));
}

fn b_part(batch: u32, k: u32, n: u32) -> vec4<$y_t> {
  if (k >= $k) { return vec4<$y_t>(); }
  return b_at4(batch, k, n);
}

fn kernel(w: u32, lane: u32) {
  // Neighbouring workgroups share rows of b in groups of 8 tiles, which the cache then holds.
  let count = $tiles_m * $tiles_n;
  let batch = w / count;
  let t = w % count;
  let band = t / (8u * $tiles_n);
  let rows_in_band = min(8u, $tiles_m - band * 8u);
  let in_band = t - band * 8u * $tiles_n;
  let row = (band * 8u + in_band % rows_in_band) * $TILE_M;
  let column = in_band / rows_in_band * $TILE_N;

  let slice = lane / THREADS;
  let me = lane % THREADS;
  let tx = me % THREADS_X;
  let ty = me / THREADS_X;
  let a_base = slice * ($TILE_K * $TILE_M / 4u);
  let b_base = A_SIZE + slice * ($TILE_K * $TILE_N / 4u);
  let last = ($n - 1u) / 4u * 4u;

  var sum: array<array<vec4<$y_t>, $COLUMNS4>, 4u * $ROWS4>;
  var next_a: array<vec4<$y_t>, A_LOADS>;
  var next_b: array<vec4<$y_t>, B_LOADS>;
  for (var l = 0u; l < A_LOADS; l++) {
    let e = me + l * THREADS;
    next_a[l] = a_part(batch, min(row + e % $TILE_M, $m - 1u), slice * $TILE_K + e / $TILE_M * 4u);
  }
  for (var l = 0u; l < B_LOADS; l++) {
    let e = me + l * THREADS;
    next_b[l] = b_part(batch, slice * $TILE_K + e / ($TILE_N / 4u), min(column + e % ($TILE_N / 4u) * 4u, last));
  }
  for (var k0 = 0u; k0 < $k; k0 += $SLICES * $TILE_K) {
    workgroupBarrier();
    for (var l = 0u; l < A_LOADS; l++) {
      let e = me + l * THREADS;
      let at = a_base + e / $TILE_M * $TILE_M + e % $TILE_M / 4u;
      let part = e % 4u;
      tiles[at][part] = next_a[l].x;
      tiles[at + $TILE_M / 4u][part] = next_a[l].y;
      tiles[at + $TILE_M / 2u][part] = next_a[l].z;
      tiles[at + 3u * $TILE_M / 4u][part] = next_a[l].w;
    }
    for (var l = 0u; l < B_LOADS; l++) { tiles[b_base + me + l * THREADS] = next_b[l]; }
    workgroupBarrier();
    let k1 = k0 + ($SLICES + slice) * $TILE_K;
    for (var l = 0u; l < A_LOADS; l++) {
      let e = me + l * THREADS;
      next_a[l] = a_part(batch, min(row + e % $TILE_M, $m - 1u), k1 + e / $TILE_M * 4u);
    }
    for (var l = 0u; l < B_LOADS; l++) {
      let e = me + l * THREADS;
      next_b[l] = b_part(batch, k1 + e / ($TILE_N / 4u), min(column + e % ($TILE_N / 4u) * 4u, last));
    }
    for (var k = 0u; k < $TILE_K; k++) {
      var b: array<vec4<$y_t>, $COLUMNS4>;
      for (var j = 0u; j < $COLUMNS4; j++) { b[j] = tiles[b_base + k * ($TILE_N / 4u) + j * THREADS_X + tx]; }
      for (var i = 0u; i < $ROWS4; i++) {
        let a = tiles[a_base + k * ($TILE_M / 4u) + ty * $ROWS4 + i];
        for (var j = 0u; j < $COLUMNS4; j++) {
          sum[4u * i][j] += a.x * b[j];
          sum[4u * i + 1u][j] += a.y * b[j];
          sum[4u * i + 2u][j] += a.z * b[j];
          sum[4u * i + 3u][j] += a.w * b[j];
        }
      }
    }
  }
  if ($ROWS4 > 1u) {
    // With a barrier in it compilers no longer unroll a loop over this many rows, and `sum` leaves the registers: 4096 x
    // 4096 x 4096 then takes 59 ms on an H200 instead of 3.0. Such tiles have one slice.
    for (var i = 0u; i < 4u * $ROWS4; i++) {
      let m = row + ty * 4u * $ROWS4 + i;
      if (m < $m) {
        for (var j = 0u; j < $COLUMNS4; j++) {
          let n = column + (j * THREADS_X + tx) * 4u;
          for (var e = 0u; e < 4u; e++) {
            if (n + e < $n) { y_put(batch, m, n + e, sum[i][j][e]); }
          }
        }
      }
    }
    return;
  }
  // Through workgroup memory, a row of each invocation at a time: neighbouring invocations then store neighbours, slices
  // are added on the way, and the maps fused into the store are compiled four times instead of once per element. The bound
  // depends on m so that no compiler unrolls the inner loop. On an H200 up to 10 % less GPU time per model.
  let end = min($m, 1u) * ($TILE_M / 4u) * $TILE_N;
  for (var i = 0u; i < 4u; i++) {
    workgroupBarrier();
    for (var j = 0u; j < $COLUMNS4; j++) {
      tiles[((slice * $TILE_M / 4u + ty) * $COLUMNS4 + j) * THREADS_X + tx] = sum[i][j];
    }
    workgroupBarrier();
    for (var e = lane; e < end; e += $WG) {
      let m = row + e / $TILE_N * 4u + i;
      let n = column + e % $TILE_N;
      if (m < $m && n < $n) {
        var total = tiles[e / 4u][e % 4u];
        for (var s = 1u; s < $SLICES; s++) { total += tiles[e / 4u + s * THREADS * $COLUMNS4][e % 4u]; }
        y_put(batch, m, n, total);
      }
    }
  }
}
