  // Neighbouring workgroups share rows of b in groups of 8 tiles, which the cache then holds.
  let t = w % count;
  let band = t / (8u * $tiles_n);
  let rows_in_band = min(8u, $tiles_m - band * 8u);
  let in_band = t - band * 8u * $tiles_n;
  let row = (band * 8u + in_band % rows_in_band) * $TILE_M;
  let column = in_band / rows_in_band * $TILE_N;
