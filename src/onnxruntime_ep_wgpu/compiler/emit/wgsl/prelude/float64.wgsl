// Floats of 64 bits, IEEE 754 binary64, as vec2<u32> with the low word first, computed with integers. So results are the same on
// every adapter, with or without f64. Sums, products, quotients and roots are rounded once, to nearest even, and numbers below
// the normal ones are kept.
//
// A finite nonzero number is digits * 2^(power - 1085), with 63 bits of digits, the first of which is 1.
fn quiet_nan_f64() -> vec2<u32> { return vec2<u32>(0u, 0x7ff80000u); }
fn size_f64(a: vec2<u32>) -> vec2<u32> { return vec2<u32>(a.x, a.y & 0x7fffffffu); }
fn isnan_f64(a: vec2<u32>) -> bool { return lt_u64(vec2<u32>(0u, 0x7ff00000u), size_f64(a)); }
fn isinf_f64(a: vec2<u32>) -> bool { return a.x == 0u && (a.y & 0x7fffffffu) == 0x7ff00000u; }
fn iszero_f64(a: vec2<u32>) -> bool { return (a.x | (a.y << 1u)) == 0u; }
fn signbit_f64(a: vec2<u32>) -> bool { return (a.y >> 31u) != 0u; }
fn neg_f64(a: vec2<u32>) -> vec2<u32> { return vec2<u32>(a.x, a.y ^ 0x80000000u); }
fn abs_f64(a: vec2<u32>) -> vec2<u32> { return size_f64(a); }
fn infinity_f64(sign: u32) -> vec2<u32> { return vec2<u32>(0u, sign | 0x7ff00000u); }
fn bool_of_f64(a: vec2<u32>) -> bool { return !iszero_f64(a); }

// Maps numbers to integers in the same order. Zeros are equal, and NaN is the largest.
fn ordered_f64(a: vec2<u32>) -> vec2<u32> {
  if (isnan_f64(a)) { return vec2<u32>(0xffffffffu); }
  if (iszero_f64(a)) { return vec2<u32>(0u, 0x80000000u); }
  return select(vec2<u32>(a.x, a.y | 0x80000000u), ~a, signbit_f64(a));
}
fn numbers_f64(a: vec2<u32>, b: vec2<u32>) -> bool { return !isnan_f64(a) && !isnan_f64(b); }
fn eq_f64(a: vec2<u32>, b: vec2<u32>) -> bool { return numbers_f64(a, b) && eq_64(ordered_f64(a), ordered_f64(b)); }
fn ne_f64(a: vec2<u32>, b: vec2<u32>) -> bool { return !eq_f64(a, b); }
fn lt_f64(a: vec2<u32>, b: vec2<u32>) -> bool { return numbers_f64(a, b) && lt_u64(ordered_f64(a), ordered_f64(b)); }
fn le_f64(a: vec2<u32>, b: vec2<u32>) -> bool { return numbers_f64(a, b) && !lt_u64(ordered_f64(b), ordered_f64(a)); }
fn gt_f64(a: vec2<u32>, b: vec2<u32>) -> bool { return lt_f64(b, a); }
fn ge_f64(a: vec2<u32>, b: vec2<u32>) -> bool { return le_f64(b, a); }
fn min_f64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  if (isnan_f64(a) || isnan_f64(b)) { return select(b, a, isnan_f64(a)); }
  return select(b, a, lt_f64(a, b));
}
fn max_f64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  if (isnan_f64(a) || isnan_f64(b)) { return select(b, a, isnan_f64(a)); }
  return select(b, a, lt_f64(b, a));
}
// The larger and the smaller, with minus zero below zero, so that order makes no difference.
fn highest_f64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  if (isnan_f64(a) || isnan_f64(b)) { return select(b, a, isnan_f64(a)); }
  let under = select(vec2<u32>(a.x, a.y | 0x80000000u), ~a, signbit_f64(a));
  return select(a, b, lt_u64(under, select(vec2<u32>(b.x, b.y | 0x80000000u), ~b, signbit_f64(b))));
}
fn lowest_f64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  if (isnan_f64(a) || isnan_f64(b)) { return select(b, a, isnan_f64(a)); }
  return neg_f64(highest_f64(neg_f64(a), neg_f64(b)));
}
fn sign_f64(a: vec2<u32>) -> vec2<u32> {
  if (isnan_f64(a)) { return a; }
  return select(vec2<u32>(0u, (a.y & 0x80000000u) | 0x3ff00000u), vec2<u32>(), iszero_f64(a));
}

fn leading_zeros_64(a: vec2<u32>) -> u32 { return select(countLeadingZeros(a.y), 32u + countLeadingZeros(a.x), a.y == 0u); }
fn left_64(a: vec2<u32>, n: u32) -> vec2<u32> { return shl_u64(a, vec2<u32>(n, 0u)); }
// Shifts right. The last bit is also set if any bit was lost.
fn jammed_64(a: vec2<u32>, n: u32) -> vec2<u32> {
  let kept = shr_u64(a, vec2<u32>(n, 0u));
  let lost = !eq_64(left_64(kept, n), a) || (n >= 64u && (a.x | a.y) != 0u);
  return vec2<u32>(kept.x | select(0u, 1u, lost), kept.y);
}
fn power_f64(a: vec2<u32>) -> i32 {
  let power = i32((a.y >> 20u) & 0x7ffu);
  return select(power, 12 - i32(leading_zeros_64(size_f64(a))), power == 0);
}
fn digits_f64(a: vec2<u32>) -> vec2<u32> {
  let normal = (a.y & 0x7ff00000u) != 0u;
  let digits = vec2<u32>(a.x, (a.y & 0xfffffu) | select(0u, 0x100000u, normal));
  return left_64(digits, leading_zeros_64(digits) - 1u);
}
// The number with 63 bits of digits. The first is 1, and the last may be a sticky bit.
fn packed_f64(sign: u32, power: i32, digits: vec2<u32>) -> vec2<u32> {
  if (power > 2046) { return infinity_f64(sign); }
  let below = max(1 - power, 0);
  let kept = jammed_64(digits, u32(below));
  let up = add_64(kept, vec2<u32>(0x200u, 0u));
  var rounded = vec2<u32>((up.x >> 10u) | (up.y << 22u), up.y >> 10u);
  if ((kept.x & 0x3ffu) == 0x200u) { rounded.x &= 0xfffffffeu; }
  // The first digit adds one to the power, and so does a carry.
  return vec2<u32>(rounded.x, sign | ((u32(max(power, 1) - 1) << 20u) + rounded.y));
}
// The same for any digits. The least bit may be a sticky bit if there are more than 54 digits.
fn normal_f64(sign: u32, power: i32, digits: vec2<u32>) -> vec2<u32> {
  if ((digits.x | digits.y) == 0u) { return vec2<u32>(0u, sign); }
  let zeros = i32(leading_zeros_64(digits));
  if (zeros == 0) { return packed_f64(sign, power + 1, jammed_64(digits, 1u)); }
  return packed_f64(sign, power + 1 - zeros, left_64(digits, u32(zeros - 1)));
}

fn add_f64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  if (!numbers_f64(a, b)) { return quiet_nan_f64(); }
  let swapped = lt_u64(size_f64(a), size_f64(b));
  let x = select(a, b, swapped);
  let y = select(b, a, swapped);
  let sign = x.y & 0x80000000u;
  let same = ((x.y ^ y.y) & 0x80000000u) == 0u;
  if (isinf_f64(x)) { return select(x, quiet_nan_f64(), isinf_f64(y) && !same); }
  if (iszero_f64(y)) { return select(x, vec2<u32>(0u, select(0u, sign, same)), iszero_f64(x)); }
  let first = jammed_64(digits_f64(x), 1u);
  let second = jammed_64(digits_f64(y), u32(power_f64(x) - power_f64(y)) + 1u);
  let digits = select(sub_64(first, second), add_64(first, second), same);
  return normal_f64(select(0u, sign, (digits.x | digits.y) != 0u), power_f64(x) + 1, digits);
}
fn sub_f64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> { return add_f64(a, neg_f64(b)); }
fn mul_f64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  let sign = (a.y ^ b.y) & 0x80000000u;
  if (!numbers_f64(a, b)) { return quiet_nan_f64(); }
  let nothing = iszero_f64(a) || iszero_f64(b);
  if (isinf_f64(a) || isinf_f64(b)) { return select(infinity_f64(sign), quiet_nan_f64(), nothing); }
  if (nothing) { return vec2<u32>(0u, sign); }
  let p = times_i128(vec4<u32>(digits_f64(a), 0u, 0u), vec4<u32>(digits_f64(b), 0u, 0u));
  return normal_f64(sign, power_f64(a) + power_f64(b) - 1021, vec2<u32>(p.z | select(0u, 1u, (p.x | p.y) != 0u), p.w));
}
fn div_f64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  let sign = (a.y ^ b.y) & 0x80000000u;
  if (!numbers_f64(a, b) || (isinf_f64(a) && isinf_f64(b)) || (iszero_f64(a) && iszero_f64(b))) { return quiet_nan_f64(); }
  if (isinf_f64(a) || iszero_f64(b)) { return infinity_f64(sign); }
  if (isinf_f64(b) || iszero_f64(a)) { return vec2<u32>(0u, sign); }
  let divisor = digits_f64(b);
  var rest = digits_f64(a);
  var digits = vec2<u32>();
  for (var k = 0u; k < 58u; k++) {
    let goes = !lt_u64(rest, divisor);
    rest = select(rest, sub_64(rest, divisor), goes);
    digits = vec2<u32>((digits.x << 1u) | select(0u, 1u, goes), (digits.y << 1u) | (digits.x >> 31u));
    rest = vec2<u32>(rest.x << 1u, (rest.y << 1u) | (rest.x >> 31u));
  }
  digits.x |= select(0u, 1u, (rest.x | rest.y) != 0u);
  return normal_f64(sign, power_f64(a) - power_f64(b) + 1028, digits);
}
fn sqrt_f64(a: vec2<u32>) -> vec2<u32> {
  if (isnan_f64(a) || iszero_f64(a)) { return select(a, quiet_nan_f64(), isnan_f64(a)); }
  if (signbit_f64(a)) { return quiet_nan_f64(); }
  if (isinf_f64(a)) { return a; }
  let even = power_f64(a) - 1085;
  var digits = left_64(digits_f64(a), u32(even & 1));
  var root = vec2<u32>();
  var rest = vec2<u32>();
  for (var k = 0u; k < 56u; k++) {
    rest = vec2<u32>((rest.x << 2u) | (digits.y >> 30u), (rest.y << 2u) | (rest.x >> 30u));
    digits = vec2<u32>(digits.x << 2u, (digits.y << 2u) | (digits.x >> 30u));
    let next = vec2<u32>((root.x << 2u) | 1u, (root.y << 2u) | (root.x >> 30u));
    let goes = !lt_u64(rest, next);
    rest = select(rest, sub_64(rest, next), goes);
    root = vec2<u32>((root.x << 1u) | select(0u, 1u, goes), (root.y << 1u) | (root.x >> 31u));
  }
  root.x |= select(0u, 1u, (rest.x | rest.y) != 0u);
  return normal_f64(0u, (even >> 1u) + 1061, root);
}

// Conversions truncate towards zero. Out of range they give the smallest number of i32 and i64. For unsigned types that is its
// bits below the least number, and 0 above the largest.
fn magnitude_of_f64(a: vec2<u32>) -> vec2<u32> {
  let power = power_f64(a);
  if (iszero_f64(a) || power < 1023) { return vec2<u32>(); }
  if (power > 1085) { return left_64(digits_f64(a), u32(power - 1085)); }
  return shr_u64(digits_f64(a), vec2<u32>(u32(1085 - power), 0u));
}
fn i64_of_f64(a: vec2<u32>) -> vec2<u32> {
  if ((a.y & 0x7fffffffu) >= 0x43e00000u) { return vec2<u32>(0u, 0x80000000u); }
  let size = magnitude_of_f64(a);
  return select(size, neg_64(size), signbit_f64(a));
}
fn u64_of_f64(a: vec2<u32>) -> vec2<u32> {
  if (signbit_f64(a) || isnan_f64(a)) { return i64_of_f64(a); }
  if ((a.y & 0x7fffffffu) >= 0x43f00000u) { return vec2<u32>(); }
  return magnitude_of_f64(a);
}
fn i32_of_f64(a: vec2<u32>) -> i32 {
  let words = i64_of_f64(a);
  return select(bitcast<i32>(0x80000000u), bitcast<i32>(words.x), bitcast<i32>(words.y) == (bitcast<i32>(words.x) >> 31u));
}
fn u32_of_f64(a: vec2<u32>) -> u32 {
  if (signbit_f64(a) || a.y < 0x41e00000u || isnan_f64(a)) { return bitcast<u32>(i32_of_f64(a)); }
  return select(i64_of_f64(a).x, 0u, a.y >= 0x41f00000u);
}
fn f64_of_u64(a: vec2<u32>) -> vec2<u32> { return normal_f64(0u, 1085, a); }
fn f64_of_i64(a: vec2<u32>) -> vec2<u32> { return normal_f64(a.y & 0x80000000u, 1085, abs_i64(a)); }
fn f64_of_u32(a: u32) -> vec2<u32> { return f64_of_u64(vec2<u32>(a, 0u)); }
fn f64_of_i32(a: i32) -> vec2<u32> { return f64_of_i64(widen_i32(a)); }
fn f64_of_f32(a: f32) -> vec2<u32> {
  let bits = bitcast<u32>(a);
  let sign = bits & 0x80000000u;
  let size = bits ^ sign;
  if (size > 0x7f800000u) { return vec2<u32>(bits << 29u, sign | 0x7ff80000u | ((bits & 0x7fffffu) >> 3u)); }
  if (size == 0x7f800000u) { return infinity_f64(sign); }
  if (size < 0x800000u) { return normal_f64(sign, 936, vec2<u32>(size, 0u)); }
  return vec2<u32>(size << 29u, sign | ((size >> 3u) + 0x38000000u));
}
fn f32_of_f64(a: vec2<u32>) -> f32 {
  let sign = a.y & 0x80000000u;
  if (isnan_f64(a)) { return bitcast<f32>(sign | 0x7fc00000u | ((a.y & 0xfffffu) << 3u) | (a.x >> 29u)); }
  let power = i32((a.y >> 20u) & 0x7ffu) - 896;
  if (power > 254) { return bitcast<f32>((sign | 0x7f800000u) ^ hidden_zero); }
  if (power < -24) { return bitcast<f32>(sign); }
  // 31 bits of digits, the last of which may be a sticky bit.
  let first = ((a.y & 0xfffffu) << 10u) | 0x40000000u | (a.x >> 22u) | select(0u, 1u, (a.x << 10u) != 0u);
  let below = u32(max(1 - power, 0));
  let kept = (first >> below) | select(0u, 1u, ((first >> below) << below) != first);
  var rounded = (kept + 0x40u) >> 7u;
  if ((kept & 0x7fu) == 0x40u) { rounded &= 0xfffffffeu; }
  return bitcast<f32>(sign | ((u32(max(power, 1) - 1) << 23u) + rounded));
}

fn trunc_f64(a: vec2<u32>) -> vec2<u32> {
  let power = i32((a.y >> 20u) & 0x7ffu);
  if (power >= 1075) { return a; }
  if (power < 1023) { return vec2<u32>(0u, a.y & 0x80000000u); }
  return a & ~shr_u64(vec2<u32>(0xffffffffu, 0xfffffu), vec2<u32>(u32(power - 1023), 0u));
}
fn floor_f64(a: vec2<u32>) -> vec2<u32> {
  let whole = trunc_f64(a);
  return select(whole, add_f64(whole, vec2<u32>(0u, 0xbff00000u)), signbit_f64(a) && !eq_64(whole, a) && !isnan_f64(a));
}
fn ceil_f64(a: vec2<u32>) -> vec2<u32> { return neg_f64(floor_f64(neg_f64(a))); }
// To nearest even, like the sum with 2^52.
fn round_f64(a: vec2<u32>) -> vec2<u32> {
  if (i32((a.y >> 20u) & 0x7ffu) >= 1075) { return a; }
  let large = vec2<u32>(0u, 0x43300000u);
  let whole = sub_f64(add_f64(size_f64(a), large), large);
  return vec2<u32>(whole.x, whole.y | (a.y & 0x80000000u));
}
// The exact remainder with the sign of the dividend, one bit at a time.
fn fmod_f64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  if (!numbers_f64(a, b) || isinf_f64(a) || iszero_f64(b)) { return quiet_nan_f64(); }
  if (lt_u64(size_f64(a), size_f64(b))) { return a; }
  let divisor = digits_f64(b);
  var rest = digits_f64(a);
  for (var left = power_f64(a) - power_f64(b); ; left--) {
    rest = select(rest, sub_64(rest, divisor), !lt_u64(rest, divisor));
    if (left == 0) { break; }
    rest = vec2<u32>(rest.x << 1u, (rest.y << 1u) | (rest.x >> 31u));
  }
  return normal_f64(a.y & 0x80000000u, power_f64(b), rest);
}
// The remainder with the sign of the divisor.
fn floormod_f64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  let r = fmod_f64(a, b);
  if (iszero_f64(r)) { return vec2<u32>(0u, b.y & 0x80000000u); }
  return select(r, add_f64(r, b), signbit_f64(r) != signbit_f64(b) && !isnan_f64(r));
}

// a * 2^n for n from -2200 to 2200.
fn scaled_f64(a: vec2<u32>, n: i32) -> vec2<u32> {
  if (isnan_f64(a) || isinf_f64(a) || iszero_f64(a)) { return a; }
  return packed_f64(a.y & 0x80000000u, power_f64(a) + n, digits_f64(a));
}
// The parts of e^a = 2^k (1 + p): returns p, and the bits of k. With a = k log 2 + r, |r| <= log 2 / 2. The Taylor series of e^r
// ends where terms fall below 2^-57. The first part of log 2 has zeros in its last 21 bits, so its product with k is exact.
fn exp_parts_f64(a: vec2<u32>) -> vec3<u32> {
  let k = round_f64(mul_f64(a, vec2<u32>(0x652b82feu, 0x3ff71547u)));
  let r = sub_f64(sub_f64(a, mul_f64(k, vec2<u32>(0xfee00000u, 0x3fe62e42u))), mul_f64(k, vec2<u32>(0x35793c76u, 0x3dea39efu)));
  var terms = array<vec2<u32>, 12>(
    vec2<u32>(0x13a86d09u, 0x3de61246u), vec2<u32>(0xeff8d898u, 0x3e21eed8u), vec2<u32>(0x67f544e4u, 0x3e5ae645u),
    vec2<u32>(0xb7789f5cu, 0x3e927e4fu), vec2<u32>(0xa556c734u, 0x3ec71de3u), vec2<u32>(0x1a01a01au, 0x3efa01a0u),
    vec2<u32>(0x1a01a01au, 0x3f2a01a0u), vec2<u32>(0x16c16c17u, 0x3f56c16cu), vec2<u32>(0x11111111u, 0x3f811111u),
    vec2<u32>(0x55555555u, 0x3fa55555u), vec2<u32>(0x55555555u, 0x3fc55555u), vec2<u32>(0x0u, 0x3fe00000u)
  );
  var sum = terms[0];
  for (var n = 1u; n < 12u; n++) { sum = add_f64(mul_f64(sum, r), terms[n]); }
  // r + r^2 (1/2 + ...), with small terms added first.
  return vec3<u32>(add_f64(r, mul_f64(mul_f64(r, r), sum)), bitcast<u32>(i32_of_f64(k)));
}
fn exp_f64(a: vec2<u32>) -> vec2<u32> {
  if (isnan_f64(a)) { return quiet_nan_f64(); }
  if (!lt_f64(size_f64(a), vec2<u32>(0u, 0x4087c000u))) { return select(infinity_f64(0u), vec2<u32>(), signbit_f64(a)); }
  let parts = exp_parts_f64(a);
  return scaled_f64(add_f64(vec2<u32>(0u, 0x3ff00000u), parts.xy), bitcast<i32>(parts.z));
}
// With e = exp(2 |a|) - 1, which loses no digit: e / (e + 2). From 20 on it is 1.
fn tanh_f64(a: vec2<u32>) -> vec2<u32> {
  if (isnan_f64(a) || iszero_f64(a)) { return a; }
  let sign = a.y & 0x80000000u;
  let one = vec2<u32>(0u, 0x3ff00000u);
  if (!lt_f64(size_f64(a), vec2<u32>(0u, 0x40340000u))) { return vec2<u32>(0u, sign | one.y); }
  let parts = exp_parts_f64(scaled_f64(size_f64(a), 1));
  let k = bitcast<i32>(parts.z);
  let e = add_f64(scaled_f64(parts.xy, k), sub_f64(scaled_f64(one, k), one));
  let y = div_f64(e, add_f64(e, vec2<u32>(0u, 0x40000000u)));
  return vec2<u32>(y.x, y.y | sign);
}
// log(2^k m) for m from 0.71 to 1.41, by the series of s = f / (2 + f), f = m - 1: log m = f - s (f - 2 (s^2/3 + s^4/5 + ...)).
fn log_f64(a: vec2<u32>) -> vec2<u32> {
  if (iszero_f64(a)) { return infinity_f64(0x80000000u); }
  if (isnan_f64(a) || signbit_f64(a)) { return quiet_nan_f64(); }
  if (isinf_f64(a)) { return a; }
  var k = power_f64(a) - 1023;
  var m = scaled_f64(a, -k);
  if (lt_u64(vec2<u32>(0x667f3bcdu, 0x3ff6a09eu), m)) { m.y -= 0x100000u; k++; }
  let f = sub_f64(m, vec2<u32>(0u, 0x3ff00000u));
  let s = div_f64(f, add_f64(f, vec2<u32>(0u, 0x40000000u)));
  let square = mul_f64(s, s);
  var terms = array<vec2<u32>, 11>(
    vec2<u32>(0x590b2164u, 0x3fb642c8u), vec2<u32>(0x18618618u, 0x3fb86186u), vec2<u32>(0xbca1af28u, 0x3fbaf286u),
    vec2<u32>(0x1e1e1e1eu, 0x3fbe1e1eu), vec2<u32>(0x11111111u, 0x3fc11111u), vec2<u32>(0x13b13b14u, 0x3fc3b13bu),
    vec2<u32>(0x745d1746u, 0x3fc745d1u), vec2<u32>(0x1c71c71cu, 0x3fcc71c7u), vec2<u32>(0x92492492u, 0x3fd24924u),
    vec2<u32>(0x9999999au, 0x3fd99999u), vec2<u32>(0x55555555u, 0x3fe55555u)
  );
  var sum = terms[0];
  for (var n = 1u; n < 11u; n++) { sum = add_f64(mul_f64(sum, square), terms[n]); }
  let correction = mul_f64(s, sub_f64(f, mul_f64(square, sum)));
  let power = f64_of_i32(k);
  let small = sub_f64(mul_f64(power, vec2<u32>(0x35793c76u, 0x3dea39efu)), correction);
  return add_f64(mul_f64(power, vec2<u32>(0xfee00000u, 0x3fe62e42u)), add_f64(f, small));
}
// Splits a non-negative angle into (r, quarter). The angle is quarter pi/2 + r, |r| <= pi/4, with r rounded once. Its product
// with 2/pi uses integers: the digits of the angle, and the 192 bits of 2/pi that determine the result (Payne and Hanek, 1983).
// So angles of any size are exact.
fn quarter_f64(a: vec2<u32>) -> vec4<u32> {
  if (lt_u64(a, vec2<u32>(0x54442d18u, 0x3fe921fbu))) { return vec4<u32>(a, 0u, 0u); }
  var bits = array<u32, 39>(
    0u, 0u, 0u, 0xa2f9836eu, 0x4e441529u, 0xfc2757d1u, 0xf534ddc0u, 0xdb629599u, 0x3c439041u, 0xfe5163abu,
    0xdebbc561u, 0xb7246e3au, 0x424dd2e0u, 0x06492eeau, 0x09d1921cu, 0xfe1deb1cu, 0xb129a73eu, 0xe88235f5u, 0x2ebb4484u, 0xe99c7026u,
    0xb45f7e41u, 0x3991d639u, 0x835339f4u, 0x9c845f8bu, 0xbdf9283bu, 0x1ff897ffu, 0xde05980fu, 0xef2f118bu, 0x5a0a6d1fu, 0x6d367ecfu,
    0x27cb09b7u, 0x4f463f66u, 0x9e5fea2du, 0x7527bac7u, 0xebe5f17bu, 0x3d0739f7u, 0x8a5292eau, 0x6bfb5fb1u, 0x1f8d5d08u
  );
  let begin = u32(power_f64(a) - 991);
  let first = begin / 32u;
  let shift = begin % 32u;
  let m = digits_f64(a);
  var p = array<u32, 6>();
  var carry = 0u;
  for (var k = 0u; k < 6u; k++) {
    let t = wide_mul(m.x, (bits[first + 5u - k] << shift) | select(bits[first + 6u - k] >> (32u - shift), 0u, shift == 0u));
    p[k] = t.x + carry;
    carry = t.y + carry_u32(p[k], t.x);
  }
  carry = 0u;
  for (var k = 0u; k < 5u; k++) {
    let t = wide_mul(m.y, (bits[first + 5u - k] << shift) | select(bits[first + 6u - k] >> (32u - shift), 0u, shift == 0u));
    let s = p[k + 1u] + t.x;
    p[k + 1u] = s + carry;
    carry = t.y + carry_u32(s, t.x) + carry_u32(p[k + 1u], s);
  }
  var high = vec2<u32>((p[4] << 2u) | (p[3] >> 30u), (p[5] << 2u) | (p[4] >> 30u));
  var low = vec2<u32>((p[2] << 2u) | (p[1] >> 30u), (p[3] << 2u) | (p[2] >> 30u));
  let below = (high.y >> 31u) != 0u;  // nearer to the next quarter
  high = select(high, ~high, below);
  low = select(low, ~low, below);
  let zeros = min(leading_zeros_64(high), 63u);
  let digits = left_64(high, zeros) | select(shr_u64(low, vec2<u32>(64u - zeros, 0u)), vec2<u32>(), zeros == 0u);
  let r = times_i128(vec4<u32>(digits, 0u, 0u), vec4<u32>(0x2168c235u, 0xc90fdaa2u, 0u, 0u));
  let rest = vec2<u32>(r.z | select(0u, 1u, (r.x | r.y) != 0u), r.w);
  let rounded = normal_f64(select(0u, 0x80000000u, below), 1022 - i32(zeros), rest);
  return vec4<u32>(rounded, (p[5] >> 30u) + select(0u, 1u, below), 0u);
}
// For angles up to pi/4, with the polynomials of the library fdlibm.
fn small_sin_f64(r: vec2<u32>) -> vec2<u32> {
  var terms = array<vec2<u32>, 6>(
    vec2<u32>(0x5acfd57cu, 0x3de5d93au), vec2<u32>(0x8a2b9cebu, 0xbe5ae5e6u),
    vec2<u32>(0x57b1fe7du, 0x3ec71de3u), vec2<u32>(0x19c161d5u, 0xbf2a01a0u),
    vec2<u32>(0x1110f8a6u, 0x3f811111u), vec2<u32>(0x55555549u, 0xbfc55555u)
  );
  let z = mul_f64(r, r);
  var sum = terms[0];
  for (var n = 1u; n < 6u; n++) { sum = add_f64(mul_f64(sum, z), terms[n]); }
  return add_f64(r, mul_f64(mul_f64(z, r), sum));
}
fn small_cos_f64(r: vec2<u32>) -> vec2<u32> {
  var terms = array<vec2<u32>, 6>(
    vec2<u32>(0xbe8838d4u, 0xbda8fae9u), vec2<u32>(0xbdb4b1c4u, 0x3e21ee9eu),
    vec2<u32>(0x809c52adu, 0xbe927e4fu), vec2<u32>(0x19cb1590u, 0x3efa01a0u),
    vec2<u32>(0x16c15177u, 0xbf56c16cu), vec2<u32>(0x5555554cu, 0x3fa55555u)
  );
  let one = vec2<u32>(0u, 0x3ff00000u);
  let z = mul_f64(r, r);
  var sum = terms[0];
  for (var n = 1u; n < 6u; n++) { sum = add_f64(mul_f64(sum, z), terms[n]); }
  let half = mul_f64(z, vec2<u32>(0u, 0x3fe00000u));
  let w = sub_f64(one, half);
  return add_f64(w, add_f64(sub_f64(sub_f64(one, w), half), mul_f64(mul_f64(z, z), sum)));
}
fn sin_f64(a: vec2<u32>) -> vec2<u32> {
  if (isnan_f64(a) || isinf_f64(a)) { return quiet_nan_f64(); }
  let q = quarter_f64(size_f64(a));
  let y = select(small_sin_f64(q.xy), small_cos_f64(q.xy), (q.z & 1u) != 0u);
  return vec2<u32>(y.x, y.y ^ (a.y & 0x80000000u) ^ ((q.z & 2u) << 30u));
}
fn cos_f64(a: vec2<u32>) -> vec2<u32> {
  if (isnan_f64(a) || isinf_f64(a)) { return quiet_nan_f64(); }
  let q = quarter_f64(size_f64(a));
  let y = select(small_cos_f64(q.xy), small_sin_f64(q.xy), (q.z & 1u) != 0u);
  return vec2<u32>(y.x, y.y ^ (((q.z + 1u) & 2u) << 30u));
}
fn tan_f64(a: vec2<u32>) -> vec2<u32> {
  if (isnan_f64(a) || isinf_f64(a)) { return quiet_nan_f64(); }
  let q = quarter_f64(size_f64(a));
  let s = small_sin_f64(q.xy);
  let c = small_cos_f64(q.xy);
  let odd = (q.z & 1u) != 0u;
  let y = div_f64(select(s, c, odd), select(c, neg_f64(s), odd));
  return vec2<u32>(y.x, y.y ^ (a.y & 0x80000000u));
}
fn sigmoid_f64(a: vec2<u32>) -> vec2<u32> {
  let one = vec2<u32>(0u, 0x3ff00000u);
  let e = exp_f64(vec2<u32>(a.x, a.y | 0x80000000u));
  return div_f64(select(one, e, signbit_f64(a)), add_f64(one, e));
}
fn swish_f64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> { return mul_f64(a, sigmoid_f64(mul_f64(b, a))); }
fn silu_f64(a: vec2<u32>) -> vec2<u32> { return mul_f64(a, sigmoid_f64(a)); }

// a^b for a positive finite a and a finite b. Integer powers up to 32 are products, so that results with 53 bits are exact.
// Others use the logarithm, and so do powers with an intermediate result out of range. Its error in units is b log a times one.
fn pow_positive_f64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  let one = vec2<u32>(0u, 0x3ff00000u);
  let size = size_f64(b);
  if (eq_64(trunc_f64(b), b) && !lt_u64(vec2<u32>(0u, 0x40400000u), size)) {
    var left = u32_of_f64(size);
    var square = a;
    var y = one;
    while (left != 0u) {
      let next = mul_f64(select(square, y, (left & 1u) != 0u), square);
      if ((left & 1u) != 0u) { y = next; left ^= 1u; } else { square = next; left >>= 1u; }
    }
    if (!signbit_f64(b)) { return y; }
    if (!isinf_f64(y) && !iszero_f64(y)) { return div_f64(one, y); }
  }
  return exp_f64(mul_f64(b, log_f64(a)));
}
fn pow_f64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  let one = vec2<u32>(0u, 0x3ff00000u);
  if (iszero_f64(b) || eq_64(a, one)) { return one; }
  if (isnan_f64(a) || isnan_f64(b)) { return quiet_nan_f64(); }
  let size = size_f64(a);
  if (isinf_f64(b)) {
    if (eq_64(size, one)) { return one; }
    return select(infinity_f64(0u), vec2<u32>(), signbit_f64(b) != lt_u64(size, one));
  }
  let whole = eq_64(trunc_f64(b), b);
  let half = scaled_f64(b, -1);
  let odd = whole && !eq_64(trunc_f64(half), half);
  let sign = select(0u, a.y & 0x80000000u, odd);
  if (iszero_f64(a) || isinf_f64(a)) {
    return select(infinity_f64(sign), vec2<u32>(0u, sign), iszero_f64(a) != signbit_f64(b));
  }
  if (signbit_f64(a) && !whole) { return quiet_nan_f64(); }
  let y = pow_positive_f64(size, b);
  return vec2<u32>(y.x, y.y | sign);
}
