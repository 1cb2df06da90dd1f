// Matrix product y = a b without workgroup memory. An invocation computes ROWS x 8 elements with vector loads, four of k at a
// time. For adapters with a cache as fast as their workgroup memory.
var<workgroup> results: array<vec4<$y_t>, $ROWS * 16u>;

fn kernel(w: u32, lane: u32) {
  let left = (w % $tiles_n) * 64u + lane * 4u;
  let right = left + 32u;
  let tiles_m = ($m + $ROWS - 1u) / $ROWS;
  let top = (w / $tiles_n % tiles_m) * $ROWS;
  let batch = w / ($tiles_n * tiles_m);
  // Surplus rows and columns repeat the last one and are not stored.
  let last = ($n - 1u) / 4u * 4u;
  let n0 = min(left, last);
  let n1 = min(right, last);
  var sum0: array<vec4<$y_t>, $ROWS>;
  var sum1: array<vec4<$y_t>, $ROWS>;
  // Zeros that no driver removes, as in `conv_taps`.
  for (var i = 0u; i < $ROWS; i++) {
    sum0[i] = vec4<$y_t>($y_t(hidden_zero));
    sum1[i] = sum0[i];
  }
  let whole = $k / 4u * 4u;
  for (var k = 0u; k < whole; k += 4u) {
    var a: array<vec4<$y_t>, $ROWS>;
    for (var i = 0u; i < $ROWS; i++) { a[i] = a_at4(batch, min(top + i, $m - 1u), k); }
    if ($TRANSPOSED) {
#for e 4
      {
        let b0 = b_at4(batch, min(n0 + #eu, $n - 1u), k);
        let b1 = b_at4(batch, min(n1 + #eu, $n - 1u), k);
        for (var i = 0u; i < $ROWS; i++) {
          sum0[i][#e] += dot(a[i], b0);
          sum1[i][#e] += dot(a[i], b1);
        }
      }
#end
    } else {
      for (var e = 0u; e < 4u; e++) {
        let b0 = b_at4(batch, k + e, n0);
        let b1 = b_at4(batch, k + e, n1);
        for (var i = 0u; i < $ROWS; i++) {
          sum0[i] += a[i][e] * b0;
          sum1[i] += a[i][e] * b1;
        }
      }
    }
  }
  for (var k = whole; k < $k; k++) {
    var b0 = vec4<$y_t>();
    var b1 = vec4<$y_t>();
    if ($TRANSPOSED) {
      for (var e = 0u; e < 4u; e++) {
        b0[e] = b_at(batch, min(n0 + e, $n - 1u), k);
        b1[e] = b_at(batch, min(n1 + e, $n - 1u), k);
      }
    } else {
      b0 = b_at4(batch, k, n0);
      b1 = b_at4(batch, k, n1);
    }
    for (var i = 0u; i < $ROWS; i++) {
      let a = a_at(batch, min(top + i, $m - 1u), k);
      sum0[i] += a * b0;
      sum1[i] += a * b1;
    }
  }
  // Results pass through workgroup memory to one loop: the text has the fused maps once, not once per element, and neighbouring
  // invocations store neighbours.
  for (var i = 0u; i < $ROWS; i++) {
    results[i * 16u + lane] = sum0[i];
    results[i * 16u + 8u + lane] = sum1[i];
  }
  workgroupBarrier();
  for (var t = lane; t < $ROWS * 64u; t += 8u) {
    let m = top + t / 64u;
    let n = w % $tiles_n * 64u + t % 64u;
    if (m < $m && n < $n) { y_put(batch, m, n, results[t / 4u][t % 4u]); }
  }
}
