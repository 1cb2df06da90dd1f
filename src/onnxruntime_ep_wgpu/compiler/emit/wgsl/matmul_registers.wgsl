// Matrix product y = a b with single-element loads and without a barrier. An invocation accumulates ROWS x COLUMNS elements. Its
// columns are WG apart, so that neighbouring invocations read and store neighbours.
//
// For SwiftShader: there a load of four costs as much as four loads, an array indexed by a loop is in memory, and a barrier makes
// the kernel a coroutine. 8 x 8 sums compile in 40 ms instead of 300, and run four times as fast as those of `matmul_direct`.
fn b_part(batch: u32, k: u32, n: u32) -> $y_t {
  if ($TRANSPOSED) { return b_at(batch, n, k); }
  return b_at(batch, k, n);
}

fn kernel(w: u32, lane: u32) {
  let tiles_m = ($m + $ROWS - 1u) / $ROWS;
  let left = w % $tiles_n * ($COLUMNS * $WG) + lane;
  let top = w / $tiles_n % tiles_m * $ROWS;
  let batch = w / ($tiles_n * tiles_m);
  // Surplus rows and columns repeat the last one and are not stored.
#for j COLUMNS
  let n#j = min(left + #ju * $WG, $n - 1u);
#end
#for i ROWS
  let m#i = min(top + #iu, $m - 1u);
#for j COLUMNS
  var sum#i_#j = $y_t(hidden_zero);  // as in `conv_taps`
#end
#end
  for (var k = 0u; k < $k; k++) {
#for j COLUMNS
    let right#j = b_part(batch, k, n#j);
#end
#for i ROWS
    let left#i = a_at(batch, m#i, k);
#for j COLUMNS
    sum#i_#j += left#i * right#j;
#end
#end
  }
  // The text has the maps fused into the store once.
  var sums = array<$y_t, $ROWS * $COLUMNS>(
#for i ROWS
#for j COLUMNS
    sum#i_#j,
#end
#end
  );
  for (var t = 0u; t < $ROWS * $COLUMNS; t++) {
    let m = top + t / $COLUMNS;
    let n = left + t % $COLUMNS * $WG;
    if (m < $m && n < $n) { y_put(batch, m, n, sums[t]); }
  }
}
