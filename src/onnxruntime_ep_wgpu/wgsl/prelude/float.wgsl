// Floats as ONNX needs them. NaN is tested on bits: an implementation may assume that `v != v` is false.
var<private> hidden_bits: u32;
// A value given by its bits; the detour keeps infinities and NaN from being constant expressions, which are errors.
fn float_bits(bits: u32) -> f32 {
  hidden_bits = bits;
  return bitcast<f32>(hidden_bits);
}
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
// Rounded to f16 by hand: a driver may take a conversion there and back for nothing.
fn half_f32(a: f32) -> f32 {
  let bits = bitcast<u32>(a);
  let magnitude = bits & 0x7fffffffu;
  if (magnitude >= 0x477ff000u) { return select(float_bits((bits & 0x80000000u) | 0x7f800000u), a, isnan_f32(a)); }
  if (magnitude < 0x38800000u) {
    let rounded = (abs(a) + 0.5f) - 0.5f;  // below the normal numbers the last place of f16 is that of 0.5 in f32
    return select(rounded, -rounded, signbit_f32(a));
  }
  return bitcast<f32>((bits + 0xfffu + ((bits >> 13u) & 1u)) & 0xffffe000u);
}
// The upper half of the bits, rounded to nearest even; a NaN keeps its sign and becomes quiet.
fn bfloat_bits(a: f32) -> u32 {
  let bits = bitcast<u32>(a);
  return select((bits + 0x7fffu + ((bits >> 16u) & 1u)) >> 16u, (bits >> 16u) | 0x40u, isnan_f32(a));
}
fn bfloat_f32(a: f32) -> f32 { return bitcast<f32>(bfloat_bits(a) << 16u); }
fn round_f32(a: f32) -> f32 { return round(a); }

// An integer that is larger for a larger number; zeros are equal and NaN is the largest.
fn ordered_f32(a: f32) -> u32 {
  let bits = bitcast<u32>(a);
  if (isnan_f32(a)) { return 0xffffffffu; }
  return select(select(bits | 0x80000000u, ~bits, signbit_f32(a)), 0x80000000u, a == 0f);
}
// NaN counts as the lower limit.
fn clamp_f32(a: f32, low: f32, high: f32) -> f32 { return select(min(max(a, low), high), low, isnan_f32(a)); }
// What a * b leaves of `c`, exact as long as it is small: products of halves of the digits are.
fn residue_f32(c: f32, a: f32, b: f32) -> f32 {
  let a1 = bitcast<f32>(bitcast<u32>(a) & 0xfffff000u);
  let b1 = bitcast<f32>(bitcast<u32>(b) & 0xfffff000u);
  return (((c - a1 * b1) - a1 * (b - b1)) - (a - a1) * b1) - (a - a1) * (b - b1);
}
// a / b. A device may take the product with the reciprocal, which is lost where it or `b` is below the normal numbers.
fn div_f32(a: f32, b: f32) -> f32 {
  let s = select(select(1f, 16777216f, abs(b) < 1.1754944e-38f), 0.25f, abs(b) > 8.507059e+37f);
  return (a * s) / (b * s);
}
// a / b rounded once; the operator may be off by 2.5 ulp, which turns the ties that quantised values are full of. The
// correction is kept apart: for a constant b NVIDIA's compiler makes (a + residue) / b of the sum, and the residue is lost.
fn quotient_f32(a: f32, b: f32) -> f32 {
  let q = div_f32(a, b);
  return select(q, q + rounded_f32(div_f32(residue_f32(a, q, b), b)), abs(q) > 1e-30f && abs(q) < 1e30f);
}
// A product that is rounded before something is added to it: a device may fuse the two, not past this.
fn rounded_f32(a: f32) -> f32 { return min(max(a, -3.4028235e+38f), 3.4028235e+38f); }
// a * b + c rounded once; the builtin may round twice.
fn fma_f32(a: f32, b: f32, c: f32) -> f32 {
  let p = a * b;
  let s = p + c;
  let other = s - p;
  return s + (((p - (s - other)) + (c - other)) - residue_f32(p, a, b));
}

// The exact remainder with the sign of the dividend, by integers: a device may flush what is below the normal numbers.
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
  if ((bitcast<u32>(r) & 0x7fffffffu) == 0u) { return select(0f, -0f, signbit_f32(b)); }
  return select(r, r + b, signbit_f32(r) != signbit_f32(b));
}
fn tanh_f32(a: f32) -> f32 {
  // Past 9 the result rounds to 1; near 0 exp loses digits, so the series takes over.
  let x = min(abs(a), 9.5f);
  let small = a - a * a * a * (0.33333333f - a * a * 0.13333333f);
  let e = exp(-2f * x);
  let big = (1f - e) / (1f + e);
  let r = select(select(big, -big, a < 0f), small, x < 0.05f);
  return select(r, a, isnan_f32(a));
}
fn sigmoid_f32(a: f32) -> f32 {
  let e = exp(-abs(a));
  let r = select(1f / (1f + e), e / (1f + e), a < 0f);
  return select(r, a, isnan_f32(a));
}
// log(1 + a) without loss for small a.
fn log1p_f32(a: f32) -> f32 {
  let u = 1f + a;
  return select(log(u) * div_f32(a, u - 1f), a, u == 1f);
}
// exp(a) - 1 without loss for small a.
fn expm1_f32(a: f32) -> f32 {
  let series = a * (1f + a * (0.5f + a * (0.16666667f + a * (0.041666667f + a * 0.0083333333f))));
  return select(exp(a) - 1f, series, abs(a) < 0.25f);
}
fn softplus_f32(a: f32) -> f32 {
  let r = max(a, 0f) + log1p_f32(exp(-abs(a)));
  return select(r, a, isnan_f32(a));
}
// Least-squares fits of our own: a polynomial in x*x below 1, of log(erfc(x)) above; 2.3 ulp at most.
fn erf_f32(a: f32) -> f32 {
  let s = a * a;
  let small = a * (1.12837917f + s * (-0.376126271f + s * (0.112836002f + s * (-0.0268544446f
    + s * (0.00518953545f + s * (-0.000802084227f + s * 7.88912283e-05f))))));
  let x = min(abs(a), 4f);
  let q = 0.000106097556f + x * (-1.12920336f + x * (-0.633940247f + x * (-0.107667072f + x * (0.024748971f
    + x * (-0.004040365f + x * (0.000409590824f + x * -1.91305803e-05f))))));
  let big = 1f - exp(q);
  let r = select(select(big, -big, a < 0f), small, abs(a) < 1f);
  return select(r, a, isnan_f32(a));
}
fn pow_f32(a: f32, b: f32) -> f32 {
  if (b == 0f || a == 1f) { return 1f; }
  if (isnan_f32(a) || isnan_f32(b)) { return quiet_nan(); }
  if (b == 1f) { return a; }
  if (b == 2f) { return a * a; }
  if (b == 3f) { return a * a * a; }
  if (b == 0.5f && !isinf_f32(a)) { return sqrt(a); }
  if (b == -1f) { return div_f32(1f, a); }
  let whole = floor(b) == b;
  let odd = whole && abs(b) < 16777216f && fract(abs(b) * 0.5f) != 0f;
  let magnitude = abs(a);
  var r = 0f;
  if (magnitude == 0f) { r = select(0f, float_bits(0x7f800000u), b < 0f); }
  else if (isinf_f32(magnitude)) { r = select(float_bits(0x7f800000u), 0f, b < 0f); }
  else if (isinf_f32(b)) { r = select(0f, float_bits(0x7f800000u), (magnitude > 1f) == (b > 0f)); if (magnitude == 1f) { r = 1f; } }
  else { r = pow(magnitude, b); }
  if (signbit_f32(a)) {
    if (!whole && magnitude != 0f && !isinf_f32(magnitude)) { return quiet_nan(); }
    if (odd) { return -r; }
  }
  return r;
}
// Sine and cosine of an eighth of a turn around 0; least-squares fits of our own, 0.15 ulp.
fn sin_small(r: f32) -> f32 {
  let s = r * r;
  return r + r * s * (-0.16666664f + s * (0.008332733f + s * -0.00019584828f));
}
fn cos_small(r: f32) -> f32 {
  let s = r * r;
  return 1f - 0.5f * s + s * s * (0.041666664f + s * (-0.0013888287f + s * 2.4544835e-05f));
}
// `a` less `k` quarter turns. The parts of pi / 2 have 8 bits, so that products with k below 65,536 are exact.
fn less_quarters(a: f32, k: f32) -> f32 {
  return (((a - k * 1.5703125f) - k * 0.0004825592041015625f) - k * 1.2665987014770508e-06f) - k * 9.89530235528946e-10f;
}
// The sine of `a` advanced by `quarters`. The builtin may be off by 2^-11 and worse far from 0; it is left what is huge.
fn sine_f32(a: f32, quarters: u32) -> f32 {
  if (!(abs(a) < 100000f)) { return select(select(sin(a), cos(a), quarters == 1u), quiet_nan(), isinf_f32(a) || isnan_f32(a)); }
  let k = round(a * 0.63661977f);
  let r = less_quarters(a, k);
  let q = bitcast<u32>(i32(k)) + quarters;
  let v = select(sin_small(r), cos_small(r), (q & 1u) == 1u);
  return select(v, -v, (q & 2u) == 2u);
}
fn sin_f32(a: f32) -> f32 { return sine_f32(a, 0u); }
fn cos_f32(a: f32) -> f32 { return sine_f32(a, 1u); }
fn tan_f32(a: f32) -> f32 { return sin_f32(a) / cos_f32(a); }
// The arc sine up to 1/2, a fit of our own to 0.7 ulp; larger arguments are halved first.
fn asin_small(x: f32) -> f32 {
  let s = x * x;
  return x + x * s * (0.16666666f + s * (0.075000986f + s * (0.04459809f + s * (0.031115467f
    + s * (0.017081074f + s * 0.03380055f)))));
}
fn acos_f32(a: f32) -> f32 {
  let x = abs(a);
  if (!(x <= 1f)) { return quiet_nan(); }
  if (x <= 0.5f) { return 1.57079633f - asin_small(a); }
  let r = 2f * asin_small(sqrt(0.5f * (1f - x)));
  return select(r, 3.14159265f - r, a < 0f);
}
fn asin_f32(a: f32) -> f32 {
  let x = abs(a);
  if (!(x <= 1f)) { return quiet_nan(); }
  if (x <= 0.5f) { return asin_small(a); }
  let r = 1.57079633f - 2f * asin_small(sqrt(0.5f * (1f - x)));
  return select(r, -r, a < 0f);
}
fn atan_f32(a: f32) -> f32 { return select(atan(a), a, isnan_f32(a)); }
fn sinh_f32(a: f32) -> f32 {
  let e = expm1_f32(abs(a));
  let r = select(0.5f * (e + e / (e + 1f)), 0.5f * e, abs(a) > 20f);
  return select(select(r, -r, a < 0f), a, isnan_f32(a));
}
fn cosh_f32(a: f32) -> f32 {
  let e = exp(abs(a));
  return select(0.5f * e + 0.5f / e, a, isnan_f32(a));
}
fn asinh_f32(a: f32) -> f32 {
  let x = abs(a);
  let r = select(log1p_f32(x + x * x / (1f + sqrt(x * x + 1f))), log(x) + 0.69314718f, x > 1e9f);
  return select(select(r, -r, a < 0f), a, isnan_f32(a) || isinf_f32(a));
}
fn acosh_f32(a: f32) -> f32 {
  if (!(a >= 1f)) { return quiet_nan(); }
  let t = a - 1f;
  return select(log1p_f32(t + sqrt(2f * t + t * t)), log(a) + 0.69314718f, a > 1e9f);
}
fn atanh_f32(a: f32) -> f32 {
  if (!(abs(a) <= 1f)) { return quiet_nan(); }
  if (abs(a) == 1f) { return a * float_bits(0x7f800000u); }
  let r = 0.5f * log1p_f32(2f * abs(a) / (1f - abs(a)));
  return select(r, -r, a < 0f);
}
// Conversions truncate towards zero. Out of range: the smallest number for i32, the low word of the 64-bit result for u32.
fn i32_of_f32(a: f32) -> i32 {
  if (!(abs(a) < 2147483648f)) { return bitcast<i32>(0x80000000u); }
  return i32(a);
}
fn u32_of_f32(a: f32) -> u32 {
  if (!(abs(a) < 4294967296f)) { return 0u; }
  return select(u32(abs(a)), 0u - u32(abs(a)), a < 0f);
}
// The remainder with the sign of the dividend. WGSL defines `%` so, but drivers do not for negative operands.
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
// The index that mirrors `i` at the outer edges of the first and last of `n` elements, which repeats them.
fn mirrored(i: i32, n: i32) -> u32 {
  let r = floormod_i32(i, max(2 * n, 1));
  return u32(min(r, 2 * n - 1 - r));
}
// The index that mirrors `i` at both ends of an axis of `n` elements without repeating them.
fn reflected(i: i32, n: i32) -> u32 {
  let period = max(2 * (n - 1), 1);
  let r = floormod_i32(i, period);
  return u32(min(r, period - r));
}
