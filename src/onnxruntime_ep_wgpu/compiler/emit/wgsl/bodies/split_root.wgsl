// The square root of 4^-e. 4^e scales the largest number of a row to between 2^13 and 2^15, or as close to it as f32 allows.
  let exponent = i32(bitcast<u32>(largest_at(batch, row)) >> 23u) - 127;
  let e = clamp((14 - exponent) >> 1u, -57, 63);
  return bitcast<f32>(u32(127 - e) << 23u);
