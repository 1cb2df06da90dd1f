// One bin of a region of interest (x1, y1, x2, y2), or `part` of its rows of samples. The result is the mean of the samples in
// the bin, or the LARGEST of their weighted neighbours. HALF: positions count from half a pixel, and a region may be smaller than
// one. RATIO: samples per axis, 0 for one per pixel. Samples outside of the image count as zeros without a loop iteration. So a
// region may have any size, and loops are no longer than the image.
  if ($extent_image == 0u || $h == 0u || $w == 0u) { return $out_t(); }
  let n = images_at(roi);
  let image = u32(clamp(select(n, n + i32($extent_image), n < 0), 0, i32($extent_image) - 1));
  let shift = select(0f, 0.5f, $HALF);
  let x0 = rois_at(roi, 0u) * $SCALE - shift;
  let y0 = rois_at(roi, 1u) * $SCALE - shift;
  let x1 = rois_at(roi, 2u) * $SCALE - shift;
  let y1 = rois_at(roi, 3u) * $SCALE - shift;
  let xs = select(max(x1 - x0, 1f), x1 - x0, $HALF);
  let ys = select(max(y1 - y0, 1f), y1 - y0, $HALF);
  let xb = xs / f32($WIDTH);
  let yb = ys / f32($HEIGHT);
  let xn = select($RATIO, u32(clamp(ceil(xb), 0f, 16777216f)), $RATIO == 0u);
  let yn = select($RATIO, u32(clamp(ceil(yb), 0f, 16777216f)), $RATIO == 0u);
  let left = x0 + f32(column) * xb;
  let top = y0 + f32(row) * yb;
  // The samples in the image, and at most one more at each end.
  let xd = xb / f32(max(xn, 1u));
  let yd = yb / f32(max(yn, 1u));
  var first_x = 0u;
  var end_x = xn;
  var first_y = 0u;
  var end_y = yn;
  if ($RATIO == 0u) {
    first_x = u32(clamp((-1f - left) / xd - 1.5f, 0f, f32(xn)));
    end_x = u32(clamp((f32($w) - left) / xd + 1.5f, f32(first_x), f32(xn)));
    first_y = u32(clamp((-1f - top) / yd - 1.5f, 0f, f32(yn)));
    end_y = u32(clamp((f32($h) - top) / yd + 1.5f, f32(first_y), f32(yn)));
  }
  end_x = min(end_x, first_x + $columns);
  end_y = min(end_y, first_y + $rows);
  let some_outside = end_x - first_x < xn || end_y - first_y < yn;
  var total = 0f;
  var first = !(some_outside || xn == 0u || yn == 0u);
  let begin = min(first_y + part * $share, end_y);
  for (var sy = begin; sy < min(begin + $share, end_y); sy++) {
    for (var sx = first_x; sx < end_x; sx++) {
      var py = top + (f32(sy) + 0.5f) * yb / f32(yn);
      var px = left + (f32(sx) + 0.5f) * xb / f32(xn);
      let outside = py < -1f || py > f32($h) || px < -1f || px > f32($w);
      py = clamp(py, 0f, f32($h) - 1f);
      px = clamp(px, 0f, f32($w) - 1f);
      let r0 = min(u32(py), $h - 1u);
      let c0 = min(u32(px), $w - 1u);
      let r1 = min(r0 + 1u, $h - 1u);
      let c1 = min(c0 + 1u, $w - 1u);
      let fy = py - f32(r0);
      let fx = px - f32(c0);
      var a = (1f - fy) * (1f - fx) * x_at(image, channel, r0, c0);
      var b = (1f - fy) * fx * x_at(image, channel, r0, c1);
      var c = fy * (1f - fx) * x_at(image, channel, r1, c0);
      var d = fy * fx * x_at(image, channel, r1, c1);
      if (outside) { a = 0f; b = 0f; c = 0f; d = 0f; }
      let largest = max(max(rank_f32(a), rank_f32(b)), max(rank_f32(c), rank_f32(d)));
      total = select(total + a + b + c + d, ranked_u32(select(max(rank_f32(total), largest), largest, first)), $LARGEST);
      first = false;
    }
  }
  if ($LARGEST) { return select(total, float_bits(0xff800000u), first); }
  return total / max(f32(xn) * f32(yn), 1f);
