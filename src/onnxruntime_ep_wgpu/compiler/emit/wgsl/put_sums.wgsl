  // Stores sums through workgroup memory, one row of each invocation at a time. Neighbouring invocations then store neighbours,
  // slices are added on the way, and the fused maps are compiled once, away from the sums. A GELU with erf next to the sums
  // spilled them from registers: 1576 x 768 x 3072 then took 10 times as long on an H200. The bounds depend on m so that no
  // compiler unrolls the loops.
  let rows = min($m, 1u) * 4u * $ROWS4;
  let end = min($m, 1u) * THREADS * $COLUMNS4;
  for (var i = 0u; i < rows; i++) {
    workgroupBarrier();
#for i ROWS4
#for e 4
    if (i == 4u * #iu + #eu) {
#for j COLUMNS4
      put_sum(((slice * (THREADS / THREADS_X) + ty) * $COLUMNS4 + #ju) * THREADS_X + tx, sum#i_#e_#j);
#end
    }
#end
#end
    workgroupBarrier();
    for (var e = lane; e < end; e += $WG) {
      let m = row + e / ($TILE_N / 4u) * 4u * $ROWS4 + i;
      let n = column + e % ($TILE_N / 4u) * 4u;
      if (m < $m && n < $n) {
        var total = sum_at(e);
        for (var s = 1u; s < $SLICES; s++) { total += sum_at(e + s * THREADS * $COLUMNS4); }
        y_put4(place, m, n, total);
      }
    }
  }
