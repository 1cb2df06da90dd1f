// Exact 64-bit integers as vec2<u32>, low word first, for targets without shader-int64.
fn add_64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  let low = a.x + b.x;
  return vec2<u32>(low, a.y + b.y + select(0u, 1u, low < a.x));
}
fn sub_64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  return vec2<u32>(a.x - b.x, a.y - b.y - select(0u, 1u, a.x < b.x));
}
fn mul_64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  let low = wide_mul(a.x, b.x);
  return vec2<u32>(low.x, low.y + a.x * b.y + a.y * b.x);
}
fn eq_64(a: vec2<u32>, b: vec2<u32>) -> bool { return a.x == b.x && a.y == b.y; }
fn lt_u64(a: vec2<u32>, b: vec2<u32>) -> bool { return a.y < b.y || (a.y == b.y && a.x < b.x); }
fn lt_i64(a: vec2<u32>, b: vec2<u32>) -> bool {
  let ah = bitcast<i32>(a.y); let bh = bitcast<i32>(b.y);
  return ah < bh || (ah == bh && a.x < b.x);
}
fn negative_64(a: vec2<u32>) -> bool { return (a.y & 0x80000000u) != 0u; }
fn neg_64(a: vec2<u32>) -> vec2<u32> { return sub_64(vec2<u32>(), a); }
fn abs_i64(a: vec2<u32>) -> vec2<u32> { return select(a, neg_64(a), negative_64(a)); }
fn abs_u64(a: vec2<u32>) -> vec2<u32> { return a; }
fn sign_i64(a: vec2<u32>) -> vec2<u32> {
  return select(vec2<u32>(select(0u, 1u, (a.x | a.y) != 0u), 0u), vec2<u32>(0xffffffffu), negative_64(a));
}
fn sign_u64(a: vec2<u32>) -> vec2<u32> { return vec2<u32>(select(0u, 1u, (a.x | a.y) != 0u), 0u); }
fn min_i64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> { return select(b, a, lt_i64(a, b)); }
fn max_i64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> { return select(a, b, lt_i64(a, b)); }
fn min_u64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> { return select(b, a, lt_u64(a, b)); }
fn max_u64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> { return select(a, b, lt_u64(a, b)); }
// Saturates to i32. The value fits if the high word repeats the sign of the low one.
fn narrow_i64(a: vec2<u32>) -> i32 {
  let low = bitcast<i32>(a.x);
  let high = bitcast<i32>(a.y);
  return select((high >> 31u) ^ 2147483647, low, high == low >> 31u);
}
fn narrow_u64(a: vec2<u32>) -> i32 { return select(2147483647, bitcast<i32>(a.x), a.y == 0u && a.x <= 2147483647u); }
fn and_64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> { return a & b; }
fn or_64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> { return a | b; }
fn xor_64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> { return a ^ b; }
fn shl_u64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  let n = b.x;
  if (b.y != 0u || n >= 64u) { return vec2<u32>(); }
  if (n == 0u) { return a; }
  if (n >= 32u) { return vec2<u32>(0u, a.x << (n - 32u)); }
  return vec2<u32>(a.x << n, (a.y << n) | (a.x >> (32u - n)));
}
fn shr_u64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  let n = b.x;
  if (b.y != 0u || n >= 64u) { return vec2<u32>(); }
  if (n == 0u) { return a; }
  if (n >= 32u) { return vec2<u32>(a.y >> (n - 32u), 0u); }
  return vec2<u32>((a.x >> n) | (a.y << (32u - n)), a.y >> n);
}
fn shl_i64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> { return shl_u64(a, b); }
fn shr_i64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  let flipped = select(vec2<u32>(), vec2<u32>(0xffffffffu), negative_64(a));
  return shr_u64(a ^ flipped, b) ^ flipped;
}
// (quotient, remainder) by binary long division; a single division if both fit in 32 bits.
fn divrem_u64(a: vec2<u32>, b: vec2<u32>) -> vec4<u32> {
  if ((b.x | b.y) == 0u) { return vec4<u32>(a, 0u, 0u); }
  if (a.y == 0u && b.y == 0u) { return vec4<u32>(a.x / b.x, 0u, a.x % b.x, 0u); }
  var quotient = vec2<u32>();
  var rest = vec2<u32>();
  for (var k = 0u; k < 64u; k++) {
    let bit = 63u - k;
    let word = select(a.x, a.y, bit >= 32u);
    rest = vec2<u32>((rest.x << 1u) | ((word >> (bit & 31u)) & 1u), (rest.y << 1u) | (rest.x >> 31u));
    if (!lt_u64(rest, b)) {
      rest = sub_64(rest, b);
      if (bit >= 32u) { quotient.y |= 1u << (bit - 32u); } else { quotient.x |= 1u << bit; }
    }
  }
  return vec4<u32>(quotient, rest);
}
fn div_u64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> { return divrem_u64(a, b).xy; }
fn rem_u64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> { return divrem_u64(a, b).zw; }
fn div_i64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  let q = divrem_u64(abs_i64(a), abs_i64(b)).xy;
  return select(q, neg_64(q), negative_64(a) != negative_64(b));
}
fn rem_i64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  let r = divrem_u64(abs_i64(a), abs_i64(b)).zw;
  return select(r, neg_64(r), negative_64(a));
}
// The remainder with the sign of the divisor: ONNX Mod with fmod=0.
fn floormod_i64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  let r = rem_i64(a, b);
  return select(r, add_64(r, b), (r.x | r.y) != 0u && negative_64(r) != negative_64(b));
}
fn floormod_u64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> { return rem_u64(a, b); }
fn pow_u64(base: vec2<u32>, exponent: vec2<u32>) -> vec2<u32> {
  var result = vec2<u32>(1u, 0u);
  var b = base;
  var e = exponent;
  for (; (e.x | e.y) != 0u; e = vec2<u32>((e.x >> 1u) | (e.y << 31u), e.y >> 1u)) {
    if ((e.x & 1u) != 0u) { result = mul_64(result, b); }
    b = mul_64(b, b);
  }
  return result;
}
fn pow_i64(base: vec2<u32>, exponent: vec2<u32>) -> vec2<u32> {
  if (negative_64(exponent)) {
    if (eq_64(base, vec2<u32>(1u, 0u))) { return base; }
    if (eq_64(base, vec2<u32>(0xffffffffu))) { return select(base, vec2<u32>(1u, 0u), (exponent.x & 1u) == 0u); }
    return vec2<u32>();
  }
  return pow_u64(base, exponent);
}
fn i128_of_u64(a: vec2<u32>) -> vec4<u32> { return vec4<u32>(a, 0u, 0u); }
fn i128_of_i64(a: vec2<u32>) -> vec4<u32> { return vec4<u32>(a, select(vec2<u32>(), vec2<u32>(0xffffffffu), negative_64(a))); }
fn widen_i32(a: i32) -> vec2<u32> { return vec2<u32>(bitcast<u32>(a), bitcast<u32>(a >> 31u)); }

// Rounds to nearest even: the bits below the 24 that f32 keeps become one sticky bit first.
fn f32_of_u64(a: vec2<u32>) -> f32 {
  if (a.y == 0u) { return f32(a.x); }
  let shift = 32u - countLeadingZeros(a.y);
  let top = shr_u64(a, vec2<u32>(shift, 0u)).x;
  let lost = (a.x & ((1u << (shift & 31u)) - 1u)) != 0u || (shift == 32u && a.x != 0u);
  let kept = f32(top | select(0u, 1u, lost));
  return kept * power_of_two(i32(shift));
}
fn f32_of_i64(a: vec2<u32>) -> f32 {
  let magnitude = f32_of_u64(abs_i64(a));
  return select(magnitude, -magnitude, negative_64(a));
}
fn truncated_magnitude(a: f32) -> vec2<u32> {
  let bits = bitcast<u32>(a);
  let exponent = i32((bits >> 23u) & 0xffu) - 150;
  let mantissa = (bits & 0x7fffffu) | 0x800000u;
  if (exponent <= -24) { return vec2<u32>(); }
  if (exponent < 0) { return vec2<u32>(mantissa >> u32(-exponent), 0u); }
  return shl_u64(vec2<u32>(mantissa, 0u), vec2<u32>(u32(exponent), 0u));
}
// Truncates towards zero. Values out of range, and NaN, become the smallest number, like on x86.
fn i64_of_f32(a: f32) -> vec2<u32> {
  if ((bitcast<u32>(a) & 0x7fffffffu) >= 0x5f000000u) { return vec2<u32>(0u, 0x80000000u); }
  let magnitude = truncated_magnitude(a);
  return select(magnitude, neg_64(magnitude), a < 0f);
}
fn u64_of_f32(a: f32) -> vec2<u32> {
  if (a < 0f) { return i64_of_f32(a); }
  if ((bitcast<u32>(a) & 0x7fffffffu) >= 0x5f800000u) { return vec2<u32>(); }
  return truncated_magnitude(a);
}
