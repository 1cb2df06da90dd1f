// A row of a cache from the beam that made it. New rows are each beam's own. USED: the device holds the number of old rows.
#default USED has("used")
#if USED
  if (row >= u32(max(used_at(batch), 0)) || row >= $known) { return x_at(batch, head, row, d); }
#else
  if (row >= $past || row >= $known) { return x_at(batch, head, row, d); }
#end
  let own = batch / $width;
  let beam = u32(clamp(beams_at(own, batch % $width, row), 0, i32($width) - 1));
  return x_at(own * $width + beam, head, row, d);
