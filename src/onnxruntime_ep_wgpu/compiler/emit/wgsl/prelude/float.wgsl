// Floats as required by ONNX. NaN is tested on bits, because an implementation may assume that `v != v` is false.
//
// Zero, unknown to the compiler: `main` sets it from the number of its workgroup.
var<private> hidden_zero: u32;
// A value given by its bits. Constant infinities and NaN are errors in WGSL, and drivers ignore them as constants of the
// translated text. Metal's compiler assumes that there are none, and turns select(x, x - infinity, hidden) of a mask into x.
fn float_bits(bits: u32) -> f32 { return bitcast<f32>(bits ^ hidden_zero); }
// Forces rounding of a sum or product. Shaders may be rearranged as if numbers were exact, and fused, but not across this.
fn rounded_f32(a: f32) -> f32 { return bitcast<f32>(bitcast<u32>(a) ^ hidden_zero); }
// Tint replaces the constant by 0.
fn minus_zero() -> f32 { return float_bits(0x80000000u); }
fn isnan_f32(a: f32) -> bool { return (bitcast<u32>(a) & 0x7fffffffu) > 0x7f800000u; }
fn isinf_f32(a: f32) -> bool { return (bitcast<u32>(a) & 0x7fffffffu) == 0x7f800000u; }
fn signbit_f32(a: f32) -> bool { return (bitcast<u32>(a) >> 31u) != 0u; }
fn quiet_nan() -> f32 { return float_bits(0x7fc00000u); }
fn eq_f32(a: f32, b: f32) -> bool { return a == b && !isnan_f32(a) && !isnan_f32(b); }
fn ne_f32(a: f32, b: f32) -> bool { return !eq_f32(a, b); }
fn lt_f32(a: f32, b: f32) -> bool { return a < b && !isnan_f32(a) && !isnan_f32(b); }
fn le_f32(a: f32, b: f32) -> bool { return a <= b && !isnan_f32(a) && !isnan_f32(b); }
fn gt_f32(a: f32, b: f32) -> bool { return lt_f32(b, a); }
fn ge_f32(a: f32, b: f32) -> bool { return le_f32(b, a); }
fn min_f32(a: f32, b: f32) -> f32 { return select(select(select(b, a, a < b), b, isnan_f32(b)), a, isnan_f32(a)); }
fn max_f32(a: f32, b: f32) -> f32 { return select(select(select(b, a, a > b), b, isnan_f32(b)), a, isnan_f32(a)); }
fn sign_f32(a: f32) -> f32 { return select(select(select(0f, 1f, a > 0f), -1f, a < 0f), a, isnan_f32(a)); }
// Rounds to f16 without a conversion: a driver may remove a conversion and its inverse.
fn half_f32(a: f32) -> f32 {
  let sign = bitcast<u32>(a) & 0x80000000u;
  let bits = bitcast<u32>(a) ^ sign;
  let normal = (bits + 0xfffu + ((bits >> 13u) & 1u)) & 0xffffe000u;
  let small = bitcast<u32>(round(abs(a) * 16777216f) * 5.9604645e-08f);  // in units of 2^-24, the least of f16
  let finite = select(normal, small, bits < 0x38800000u);
  return select(bitcast<f32>(sign | select(finite, 0x7f800000u, bits >= 0x477ff000u)), a, bits > 0x7f800000u);
}
// Two f16 in a word, rounded to nearest even. Without pack2x16float: AMD's drivers round towards zero, WGSL leaves the result for
// values that are no finite f16 open, and SwiftShader turns infinity into NaN.
fn pack_halves(v: vec2f) -> u32 {
  let bits = bitcast<vec2u>(v);
  let magnitude = bits & vec2u(0x7fffffffu);
  let normal = ((magnitude + vec2u(0xfffu) + ((magnitude >> vec2u(13u)) & vec2u(1u))) >> vec2u(13u)) - vec2u(0x1c000u);
  let below = magnitude < vec2u(0x38800000u);
  let small = vec2u(round(select(vec2f(0f), abs(v), below) * 16777216f));
  let special = select(vec2u(0x7c00u), vec2u(0x7e00u), magnitude > vec2u(0x7f800000u));
  let chosen = select(select(normal, small, below), special, magnitude >= vec2u(0x477ff000u));
  let halves = ((bits >> vec2u(16u)) & vec2u(0x8000u)) | chosen;
  return halves.x | (halves.y << 16u);
}
// The upper half of the bits, rounded to nearest even. A NaN keeps its sign and becomes quiet.
fn bfloat_bits(a: f32) -> u32 {
  let bits = bitcast<u32>(a);
  return select((bits + 0x7fffu + ((bits >> 16u) & 1u)) >> 16u, (bits >> 16u) | 0x40u, isnan_f32(a));
}
fn bfloat_f32(a: f32) -> f32 { return bitcast<f32>(bfloat_bits(a) << 16u); }
fn round_f32(a: f32) -> f32 { return round(a); }

// Maps numbers to integers in the same order. Zeros are equal, and NaN is the largest.
fn ordered_f32(a: f32) -> u32 {
  let bits = bitcast<u32>(a);
  if (isnan_f32(a)) { return 0xffffffffu; }
  return select(select(bits | 0x80000000u, ~bits, signbit_f32(a)), 0x80000000u, a == 0f);
}
// The same, with minus zero below zero. Reductions and workgroups compare these, so that order makes no difference.
fn rank_f32(a: f32) -> u32 {
  let bits = bitcast<u32>(a);
  let rank = bits ^ (bitcast<u32>(bitcast<i32>(bits) >> 31u) | 0x80000000u);
  return select(rank, 0xffffffffu, isnan_f32(a));
}
// The same, with NaN as the smallest.
fn low_rank_f32(a: f32) -> u32 {
  let bits = bitcast<u32>(a);
  let rank = bits ^ (bitcast<u32>(bitcast<i32>(bits) >> 31u) | 0x80000000u);
  return select(rank, 0u, isnan_f32(a));
}
// The number with a rank.
fn ranked_u32(rank: u32) -> f32 { return float_bits(select(~rank, rank ^ 0x80000000u, rank >= 0x80000000u)); }
// NaN counts as the lower limit.
fn clamp_f32(a: f32, low: f32, high: f32) -> f32 { return select(min(max(a, low), high), low, isnan_f32(a)); }
// The residue c - a * b, exact as long as it is small, because products of halves of the digits are exact.
fn residue_f32(c: f32, a: f32, b: f32) -> f32 {
  let a1 = bitcast<f32>(bitcast<u32>(a) & 0xfffff000u);
  let b1 = bitcast<f32>(bitcast<u32>(b) & 0xfffff000u);
  let first = rounded_f32(c - a1 * b1);
  let second = rounded_f32(first - a1 * rounded_f32(b - b1));
  return rounded_f32(second - rounded_f32(a - a1) * b1) - rounded_f32(a - a1) * rounded_f32(b - b1);
}
// a / b. A device may multiply by the reciprocal, which is lost if it or `b` is below the normal numbers.
fn div_f32(a: f32, b: f32) -> f32 {
  let s = select(select(1f, 16777216f, abs(b) < 1.1754944e-38f), 0.25f, abs(b) > 8.507059e+37f);
  return (a * s) / (b * s);
}
// a / b rounded once. The operator may be off by 2.5 ulp, which breaks ties, and quantised values are full of these. The
// correction is kept separate: for a constant b NVIDIA's compiler turns the sum into (a + residue) / b, and the residue is lost.
fn quotient_f32(a: f32, b: f32) -> f32 {
  let q = div_f32(a, b);
  return select(q, q + rounded_f32(div_f32(residue_f32(a, q, b), b)), abs(q) > 1e-30f && abs(q) < 1e30f);
}
// a * b + c rounded once. The builtin may round twice.
fn fma_f32(a: f32, b: f32, c: f32) -> f32 {
  let p = rounded_f32(a * b);
  let s = rounded_f32(p + c);
  let other = rounded_f32(s - p);
  let lost = rounded_f32(p - rounded_f32(s - other)) + rounded_f32(c - other);
  let r = s + (rounded_f32(lost) - residue_f32(p, a, b));
  return select(r, s, isnan_f32(r));
}

// The exact remainder with the sign of the dividend, by integers: a device may flush numbers below the normal ones.
fn fmod_f32(a: f32, b: f32) -> f32 {
  let x = bitcast<u32>(a) & 0x7fffffffu;
  let y = bitcast<u32>(b) & 0x7fffffffu;
  if (y == 0u || x >= 0x7f800000u || y > 0x7f800000u) { return quiet_nan(); }
  if (x < y) { return a; }
  // Numbers are digits * 2^(power - 150).
  let digits = select(y, (y & 0x7fffffu) | 0x800000u, y >= 0x800000u);
  var power = max(y >> 23u, 1u);
  var rest = select(x, (x & 0x7fffffu) | 0x800000u, x >= 0x800000u) % digits;
  for (var left = max(x >> 23u, 1u) - power; left > 0u;) {
    let step = min(left, 8u);
    rest = (rest << step) % digits;
    left -= step;
  }
  let sign = bitcast<u32>(a) & 0x80000000u;
  if (rest == 0u) { return bitcast<f32>(sign); }
  let shift = min(23u - firstLeadingBit(rest), power - 1u);
  return bitcast<f32>(sign | (((power - shift - 1u) << 23u) + (rest << shift)));
}
// The remainder with the sign of the divisor.
fn floormod_f32(a: f32, b: f32) -> f32 {
  let r = fmod_f32(a, b);
  if ((bitcast<u32>(r) & 0x7fffffffu) == 0u) { return bitcast<f32>(bitcast<u32>(b) & 0x80000000u); }
  return select(r, r + b, signbit_f32(r) != signbit_f32(b));
}
// Tests bits, because a device may treat numbers below the normal ones as zero.
fn bool_of_f32(a: f32) -> bool { return (bitcast<u32>(a) << 1u) != 0u; }
// Conversions truncate towards zero. Out of range they give the smallest number for i32, and the low word of the 64-bit result
// for u32.
fn i32_of_f32(a: f32) -> i32 {
  if ((bitcast<u32>(a) & 0x7fffffffu) >= 0x4f000000u) { return bitcast<i32>(0x80000000u); }
  return i32(a);
}
fn u32_of_f32(a: f32) -> u32 {
  if ((bitcast<u32>(a) & 0x7fffffffu) >= 0x4f800000u) { return 0u; }
  return select(u32(abs(a)), 0u - u32(abs(a)), a < 0f);
}
// The remainder with the sign of the dividend. WGSL defines `%` so, but drivers differ for negative operands.
fn rem_i32(a: i32, b: i32) -> i32 { return select(a - a / b * b, 0, b == 0); }
fn floormod_i32(a: i32, b: i32) -> i32 {
  let r = rem_i32(a, b);
  return select(r, r + b, r != 0 && ((r < 0) != (b < 0)));
}
fn floormod_u32(a: u32, b: u32) -> u32 { return a % b; }
fn abs_u32(a: u32) -> u32 { return a; }
fn sign_i32(a: i32) -> i32 { return sign(a); }
fn sign_u32(a: u32) -> u32 { return min(a, 1u); }
fn narrow_u32(a: u32) -> i32 { return i32(min(a, 2147483647u)); }
fn shl_i32(a: i32, b: i32) -> i32 { return bitcast<i32>(shl_u32(bitcast<u32>(a), bitcast<u32>(b))); }
fn shr_i32(a: i32, b: i32) -> i32 { return a >> min(bitcast<u32>(b), 31u); }
fn shl_u32(a: u32, b: u32) -> u32 { return select(a << (b & 31u), 0u, b >= 32u); }
fn shr_u32(a: u32, b: u32) -> u32 { return select(a >> (b & 31u), 0u, b >= 32u); }
fn pow_i32(base: i32, exponent: i32) -> i32 {
  if (exponent < 0) { return select(select(0, select(-1, 1, exponent % 2 == 0), base == -1), 1, base == 1); }
  return bitcast<i32>(pow_u32(bitcast<u32>(base), u32(exponent)));
}
fn pow_u32(base: u32, exponent: u32) -> u32 {
  var result = 1u;
  var b = base;
  for (var e = exponent; e > 0u; e >>= 1u) {
    if ((e & 1u) == 1u) { result *= b; }
    b *= b;
  }
  return result;
}
// 32 x 32 -> 64 bits from four 16-bit products.
fn wide_mul(a: u32, b: u32) -> vec2<u32> {
  let al = a & 0xffffu; let ah = a >> 16u;
  let bl = b & 0xffffu; let bh = b >> 16u;
  let low = al * bl;
  let mid = ah * bl + (low >> 16u);
  let mid2 = al * bh + (mid & 0xffffu);
  return vec2<u32>((mid2 << 16u) | (low & 0xffffu), ah * bh + (mid >> 16u) + (mid2 >> 16u));
}
// The index that mirrors `i` at the outer edges of the first and last of `n` elements, which repeats them.
fn mirrored(i: i32, n: i32) -> u32 {
  let r = floormod_i32(i, max(2 * n, 1));
  return u32(min(r, 2 * n - 1 - r));
}
// The element that an index refers to on an axis of `extent` elements, at least one. Negative indices count from the end. Indices
// outside are clamped.
fn element_of(index: i32, extent: u32) -> u32 {
  return u32(clamp(select(index, index + i32(extent), index < 0), 0, i32(extent) - 1));
}
// The index that mirrors `i` at both ends of an axis of `n` elements without repeating them.
fn reflected(i: i32, n: i32) -> u32 {
  let period = max(2 * (n - 1), 1);
  let r = floormod_i32(i, period);
  return u32(min(r, period - r));
}
