// Floats of at most 8 bits, defined by their number of fraction digits and the exponent of their least normal number. `sign` is
// the sign bit. `nan` and `infinity` are bit patterns, 256 if absent; a NaN of 128 is the pattern of minus zero.

// The nearest number of such a type, to nearest even, or `beyond` if it exceeds the largest.
fn minifloat_f32(a: f32, digits: f32, least: f32, largest: f32, beyond: f32) -> f32 {
  if (isnan_f32(a)) { return a; }
  let size = min(abs(a), 2f * largest);
  let last = max(i32(bitcast<u32>(size) >> 23u) - 127, i32(least)) - i32(digits);
  let r = round(size * power_of_two(-last)) * power_of_two(last);
  let v = select(r, beyond, r > largest);
  return select(v, -v, signbit_f32(a));
}

// The bits of a number of the type. If there is no NaN, NaN becomes minus zero.
fn minifloat_bits(a: f32, digits: u32, least: i32, sign: u32, nan: u32, infinity: u32) -> u32 {
  if (isnan_f32(a)) { return select(nan, sign, nan == 256u); }
  let signed = select(0u, sign, signbit_f32(a));
  if (isinf_f32(a)) { return select(signed | infinity, nan, infinity == 256u); }
  let exponent = max(i32(bitcast<u32>(abs(a)) >> 23u) - 127, least);
  // The leading digit of a normal number increments the exponent.
  let bits = (u32(exponent - least) << digits) + u32(abs(a) * power_of_two(i32(digits) - exponent));
  return select(signed | bits, 0u, bits == 0u && nan == sign);
}

fn minifloat_value(bits: u32, digits: u32, least: i32, sign: u32, nan: u32, infinity: u32) -> f32 {
  let size = bits & (sign - 1u);
  if (bits == nan || (nan < sign && size >= nan)) { return quiet_nan(); }
  let exponent = max(size >> digits, 1u);
  let leading = select(1u << digits, 0u, (size >> digits) == 0u);
  let places = (size & ((1u << digits) - 1u)) + leading;
  let v = select(f32(places) * power_of_two(i32(exponent) - 1 + least - i32(digits)), float_bits(0x7f800000u), size == infinity);
  return select(v, -v, (bits & sign) != 0u);
}
