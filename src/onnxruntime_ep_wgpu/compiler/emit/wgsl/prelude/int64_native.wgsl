// 64-bit integers on adapters that have them: functions that WGSL operators do not provide.

// Signed numbers are always compared by their bits with the sign inverted. Mesa turns the operators on `i64(i)`, i: i32, and a
// constant into a comparison of 32 bits, with wrong results (22.3 on lavapipe: never less).
fn biased_i64_native(a: i64) -> u64 { return bitcast<u64>(a) ^ 0x8000000000000000lu; }
fn lt_i64_native(a: i64, b: i64) -> bool { return biased_i64_native(a) < biased_i64_native(b); }
fn le_i64_native(a: i64, b: i64) -> bool { return biased_i64_native(a) <= biased_i64_native(b); }
fn gt_i64_native(a: i64, b: i64) -> bool { return lt_i64_native(b, a); }
fn ge_i64_native(a: i64, b: i64) -> bool { return le_i64_native(b, a); }
fn negative_i64_native(a: i64) -> bool { return lt_i64_native(a, 0li); }
fn min_i64_native(a: i64, b: i64) -> i64 { return select(b, a, lt_i64_native(a, b)); }
fn max_i64_native(a: i64, b: i64) -> i64 { return select(a, b, lt_i64_native(a, b)); }
fn min_u64_native(a: u64, b: u64) -> u64 { return select(b, a, a < b); }
fn max_u64_native(a: u64, b: u64) -> u64 { return select(b, a, a > b); }
fn abs_i64_native(a: i64) -> i64 { return select(a, -a, negative_i64_native(a)); }
fn abs_u64_native(a: u64) -> u64 { return a; }
fn sign_i64_native(a: i64) -> i64 { return select(select(1li, 0li, a == 0li), -1li, negative_i64_native(a)); }
fn sign_u64_native(a: u64) -> u64 { return select(0lu, 1lu, a > 0lu); }

// Truncates towards zero. Values out of range, and NaN, become the smallest number, like on x86.
fn i64_of_f32_native(a: f32) -> i64 {
  if ((bitcast<u32>(a) & 0x7fffffffu) >= 0x5f000000u) { return (-9223372036854775807li - 1li); }
  return i64(a);
}
fn u64_of_f32_native(a: f32) -> u64 {
  if (a < 0f) { return bitcast<u64>(i64_of_f32_native(a)); }
  if ((bitcast<u32>(a) & 0x7fffffffu) >= 0x5f800000u) { return 0lu; }
  return u64(a);
}

// Conversions between integers keep the low bits.
fn i32_of_i64_native(a: i64) -> i32 { return i32(a); }
fn u32_of_i64_native(a: i64) -> u32 { return u32(a); }
fn f32_of_i64_native(a: i64) -> f32 { return f32(a); }
fn i64_of_i32_native(a: i32) -> i64 { return i64(a); }
fn i64_of_u32_native(a: u32) -> i64 { return bitcast<i64>(u64(a)); }  // naga sign-extends i64(a)
fn i32_of_u64_native(a: u64) -> i32 { return i32(a); }
fn u32_of_u64_native(a: u64) -> u32 { return u32(a); }
fn f32_of_u64_native(a: u64) -> f32 { return f32(a); }
fn u64_of_i32_native(a: i32) -> u64 { return bitcast<u64>(i64(a)); }
fn u64_of_u32_native(a: u32) -> u64 { return u64(a); }
fn i128_of_u64_native(a: u64) -> vec4<u32> { return vec4<u32>(u32(a), u32(a >> 32u), 0u, 0u); }
fn i128_of_i64_native(a: i64) -> vec4<u32> {
  return vec4<u32>(u32(a), bitcast<u32>(i32(a >> 32u)), vec2<u32>(bitcast<u32>(i32(a >> 63u))));
}
fn u64_of_i128_native(a: vec4<u32>) -> u64 { return u64(a.x) | (u64(a.y) << 32u); }
fn i64_of_i128_native(a: vec4<u32>) -> i64 { return bitcast<i64>(u64_of_i128_native(a)); }

// Saturates to i32. The value fits if the high word repeats the sign of the low one.
fn narrow_i64_native(a: i64) -> i32 {
  let low = i32(a);
  let high = i32(a >> 32u);
  return select((high >> 31u) ^ 2147483647, low, high == low >> 31u);
}
fn narrow_u64_native(a: u64) -> i32 { return select(2147483647, i32(a), (a >> 31u) == 0lu); }

// Shifts by 64 or more give 0.
fn shl_u64_native(a: u64, b: u64) -> u64 { return select(a << u32(b), 0lu, b >= 64lu); }
fn shr_u64_native(a: u64, b: u64) -> u64 { return select(a >> u32(b), 0lu, b >= 64lu); }
fn shl_i64_native(a: i64, b: i64) -> i64 { return bitcast<i64>(shl_u64_native(bitcast<u64>(a), bitcast<u64>(b))); }
fn shr_i64_native(a: i64, b: i64) -> i64 { return a >> min(u32(min_u64_native(bitcast<u64>(b), 63lu)), 63u); }
// Uses magnitudes: NVIDIA's compiler (580.159.04) rounds a quotient of signed numbers down, not towards zero, if a comparison of
// its remainder follows.
fn magnitude_i64_native(a: i64) -> u64 { return bitcast<u64>(abs_i64_native(a)); }
fn div_i64_native(a: i64, b: i64) -> i64 {
  let q = bitcast<i64>(magnitude_i64_native(a) / magnitude_i64_native(b));
  return select(q, -q, negative_i64_native(a) != negative_i64_native(b));
}
fn rem_i64_native(a: i64, b: i64) -> i64 {
  let r = bitcast<i64>(magnitude_i64_native(a) % magnitude_i64_native(b));
  return select(r, -r, negative_i64_native(a));
}
// The remainder with the sign of the divisor (ONNX Mod with fmod=0), from the truncated one.
fn floormod_i64_native(a: i64, b: i64) -> i64 {
  let r = rem_i64_native(a, b);
  return select(r, r + b, r != 0li && negative_i64_native(r) != negative_i64_native(b));
}
fn floormod_u64_native(a: u64, b: u64) -> u64 { return a % b; }
fn pow_i64_native(base: i64, exponent: i64) -> i64 {
  if (negative_i64_native(exponent)) { return select(select(0li, select(-1li, 1li, exponent % 2li == 0li), base == -1li), 1li, base == 1li); }
  var result = 1li;
  var b = base;
  var e = exponent;
  for (; e != 0li; e = e / 2li) {
    if (e % 2li == 1li) { result *= b; }
    b *= b;
  }
  return result;
}
fn pow_u64_native(base: u64, exponent: u64) -> u64 {
  var result = 1lu;
  var b = base;
  var e = exponent;
  for (; e > 0lu; e = e / 2lu) {
    if (e % 2lu == 1lu) { result *= b; }
    b *= b;
  }
  return result;
}
// Conversions to and from pairs of words, the low one first.
fn u64_of_words(a: vec2<u32>) -> u64 { return u64(a.x) | (u64(a.y) << 32u); }
fn words_of_u64(a: u64) -> vec2<u32> { return vec2<u32>(u32(a), u32(a >> 32u)); }
fn u64_of_f64_native(a: vec2<u32>) -> u64 { return u64_of_words(u64_of_f64(a)); }
fn i64_of_f64_native(a: vec2<u32>) -> i64 { return bitcast<i64>(u64_of_words(i64_of_f64(a))); }
fn f64_of_u64_native(a: u64) -> vec2<u32> { return f64_of_u64(words_of_u64(a)); }
fn f64_of_i64_native(a: i64) -> vec2<u32> { return f64_of_i64(words_of_u64(bitcast<u64>(a))); }
fn ordered_f64_native(a: vec2<u32>) -> u64 { return u64_of_words(ordered_f64(a)); }
