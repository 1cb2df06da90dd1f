// One part of an f32 number, exact or rounded once in f16: the rounded value, the same with zeros for infinity and NaN (FINITE),
// or the remainder (LOW).
  let part = at / $length;
  let k = at % $length;
  if (k >= $terms) { return 0f; }
#if TERMS_FIRST
  let x = x_at(batch, k, row);
#else
  let x = x_at(batch, row, k);
#end
  let e = 127 - i32(bitcast<u32>(root_at(batch, row)) >> 23u);
  let scaled = x * bitcast<f32>(u32(127 + 2 * e) << 23u);
  let bits = bitcast<u32>(scaled);
  if ((bits & 0x7f800000u) == 0x7f800000u) { return select(0f, scaled, part != $FINITE && part != $LOW); }
  let high = bitcast<f32>((bits + 0x1000u) & 0xffffe000u);
  return select(high, scaled - high, part == $LOW);
