// Exponentials, logarithms, powers, trigonometric and hyperbolic functions of f32, at most 4 units of the last place from the
// exact value (docs/numbers.md). The builtins of WGSL may be, and are, much less exact. The polynomials are fits of this project
// (bench/fits.py). Fused or separate products and sums make no difference: exact steps fit into 24 bits.

// The 12 leading bits. Products of two such numbers are exact.
fn leading_f32(a: f32) -> f32 { return bitcast<f32>(bitcast<u32>(a) & 0xfffff000u); }
// A non-negative number with the sign of another, also for zeros.
fn signed_f32(size: f32, a: f32) -> f32 { return bitcast<f32>(bitcast<u32>(size) | (bitcast<u32>(a) & 0x80000000u)); }
fn power_of_two(exponent: i32) -> f32 { return bitcast<f32>(u32(exponent + 127) << 23u); }
// a * 2^n, n from -252 to 254, in two steps that are exact except for the last rounding.
fn scaled_f32(a: f32, n: i32) -> f32 {
  let half = n >> 1u;
  return a * power_of_two(half) * power_of_two(n - half);
}

// exp(a + tail) - 1, with a sum within half of ln 2 and a much smaller `tail`.
fn exp_small(a: f32, tail: f32) -> f32 {
  let r = a + tail;
  let q = 0.49999994f + r * (0.166665211f + r * (0.0416682586f + r * (0.00836866815f + r * 0.0013821302f)));
  return a + (r * r * q + tail);
}
// c * exp(a + tail) * 2^n, not for NaN.
fn times_exp(c: f32, a: f32, tail: f32, n: i32) -> f32 {
  let x = clamp(a, -135f, 100f);
  let k = round((x + tail) * 1.44269504f);
  // The first part of ln 2 has so few digits that the product and the difference are exact.
  return scaled_f32(c + c * exp_small(x - k * 0.693359375f, k * 0.00021219444f + tail), i32(k) + n);
}
fn exp_sum(a: f32, tail: f32, n: i32) -> f32 { return times_exp(1f, a, tail, n); }
fn exp_f32(a: f32) -> f32 { return select(exp_sum(a, 0f, 0), a, isnan_f32(a)); }
// exp(a) - 1 without loss for small a. Uses half of 2^k, because 2^128 is not a number.
fn expm1_f32(a: f32) -> f32 {
  let x = clamp(a, -30f, 89f);
  let k = round(x * 1.44269504f);
  let half = power_of_two(i32(k) - 1);
  let r = 2f * (half * exp_small(x - k * 0.693359375f, k * 0.00021219444f) + (half - 0.5f));
  return select(r, a, abs(a) < 3e-8f || isnan_f32(a));
}

// k ln 2 + log(1 + f), f from sqrt(1/2) - 1 to sqrt(2) - 1.
fn log_sum(f: f32, k: f32) -> f32 {
  let q = 0.333333313f + f * (-0.250008196f + f * (0.200012416f + f * (-0.166234091f + f * (0.142015815f
    + f * (-0.131596133f + f * (0.127621979f + f * -0.076363951f))))));
  return k * 0.693359375f + (f + (f * f * (f * q - 0.5f) - k * 0.00021219444f));
}
// (f, k) of a positive a = (1 + f) 2^k. Below the normal numbers the bits are an integer.
fn log_parts(a: f32) -> vec2f {
  let bits = bitcast<u32>(a);
  let small = bits < 0x00800000u;
  let whole = bitcast<i32>(select(bits, bitcast<u32>(f32(bits)), small));
  let k = (whole - 0x3f3504f3) >> 23u;
  return vec2f(bitcast<f32>(whole - (k << 23u)) - 1f, f32(k - select(0, 149, small)));
}
fn log_f32(a: f32) -> f32 {
  let parts = log_parts(a);
  let bits = bitcast<u32>(a);
  if (bits - 1u < 0x7f7fffffu) { return log_sum(parts.x, parts.y); }
  if ((bits << 1u) == 0u) { return float_bits(0xff800000u); }
  return select(quiet_nan(), a, bits == 0x7f800000u);
}
// log(1 + a) without loss for small a, for a from 0 to 2^125: 2^-k a + (2^-k - 1) is exact where it is small.
fn log1p_f32(a: f32) -> f32 {
  let k = (bitcast<i32>(1f + a) - 0x3f3504f3) >> 23u;
  let s = power_of_two(-k);
  return log_sum(s * a + (s - 1f), f32(k));
}

// a * sigmoid(-x - rest) for `negative`, else a * sigmoid(x + rest), x not negative. It multiplies by the exponential, since
// another factor could be below the normal numbers while the result is not. Where the exponential vanishes, `a` must not be
// large.
fn times_sigmoid(a: f32, x: f32, rest: f32, negative: bool) -> f32 {
  let part = a / (1f + exp_sum(-x, -rest, 0));
  return select(part, times_exp(part, -x, -rest, 0), negative);
}
fn sigmoid_f32(a: f32) -> f32 { return select(times_sigmoid(1f, abs(a), 0f, a < 0f), a, isnan_f32(a)); }
// A product with another factor that vanishes at minus infinity: NaN there, like the CPU provider's, and for NaN.
fn vanishing_f32(r: f32, a: f32) -> f32 {
  return select(select(r, a, isnan_f32(a)), quiet_nan(), bitcast<u32>(a) == 0xff800000u);
}
// a * sigmoid(a)
fn silu_f32(a: f32) -> f32 { return vanishing_f32(times_sigmoid(max(a, -200f), abs(a), 0f, a < 0f), a); }
// a * sigmoid(b * a), b finite, with the digits that the product loses.
fn swish_f32(a: f32, b: f32) -> f32 {
  let p = a * b;
  let lost = select(0f, residue_f32(p, a, b), abs(p) < 200f);
  let r = times_sigmoid(select(a, clamp(a, -200f, 200f), p < -200f), abs(p), select(-lost, lost, p < 0f), p < 0f);
  return select(select(r, p, isnan_f32(p)), quiet_nan(), isinf_f32(a) && p < 0f);
}
fn softplus_f32(a: f32) -> f32 {
  let r = max(a, 0f) + log1p_f32(exp_sum(-abs(a), 0f, 0));
  return select(r, a, isnan_f32(a));
}
// a * tanh(softplus(a)). With e = exp(a) that is a e (e + 2) / (e (e + 2) + 2), or a minus 2 a / (e (e + 2) + 2).
fn mish_f32(a: f32) -> f32 {
  let x = min(a, 20f);
  let e = exp_sum(x, 0f, 0);
  let part = clamp(a, -200f, 20f) * (select(2f, e + 2f, signbit_f32(a)) / (e * (e + 2f) + 2f));
  return vanishing_f32(select(a - part, times_exp(part, x, 0f, 0), signbit_f32(a)), a);
}
// a * P(X > x) for a normal X, x = |a| up to 15. The square has two parts.
fn times_normal_tail(a: f32, x: f32) -> f32 {
  let t = 1f / (x + 2f);
  let v = (x - 2f) * t;
  let portion = signed_f32(select(x * t, 1f - 2f * t, x > 2f), a);
  let p = 0.672407985f + v * (-0.331404418f + v * (0.0287985317f + v * (0.0367183983f + v * (-0.000483420416f
    + v * (-0.006733994f + v * (-0.00188763184f + v * (0.000846645853f + v * (0.000709547778f + v * (5.8888254e-05f
    + v * -5.95191996e-05f)))))))));
  let h = leading_f32(x);
  return times_exp(portion * p, -0.5f * h * h, -0.5f * (x - h) * (x + h), 0);
}
fn gelu_f32(a: f32) -> f32 {
  let q = times_normal_tail(a, min(abs(a), 15f));
  return vanishing_f32(select(select(a - q, q, signbit_f32(a)), a, a > 15f), a);
}
// a * sigmoid(2 sqrt(2 / pi) (a + 0.044715 a^3)), which is the approximation by tanh. The exponent has two parts.
fn gelu_tanh_f32(a: f32) -> f32 {
  let x = min(abs(a), 12f);
  let h = leading_f32(x);
  let square = leading_f32(h * h);
  let product = 0.07135009765625f * square;
  let factor = leading_f32(1.59576917f + product);
  let rest = ((1.595703125f - factor) + product)
    + (6.5996603e-05f + 4.7186163e-06f * square + 0.071354814f * ((h * h - square) + (x - h) * (x + h)));
  return vanishing_f32(times_sigmoid(max(a, -200f), h * factor, h * rest + (x - h) * (factor + rest), a < 0f), a);
}
// These three are for results in halves, with an error within 2^-17, like the builtin exponentials of WGSL.
fn gelu_half_f32(a: f32) -> f32 {
  let x = abs(a);
  let p = -0.999996841f + x * (-1.1512115f + x * (-0.458624661f + x * (-0.0537247546f + x * (0.00834756717f
    + x * (-0.000875573314f + x * (5.24071111e-05f + x * -1.2386389e-06f))))));
  let tail = select(exp2(p), 0f, x > 6f);
  return a * select(1f - tail, tail, a < 0f);
}
fn gelu_tanh_half_f32(a: f32) -> f32 { return a / (1f + exp2(a * (-2.3022082f - 0.10294324f * a * a))); }
fn silu_half_f32(a: f32) -> f32 { return a / (1f + exp2(-1.44269504f * a)); }

fn tanh_f32(a: f32) -> f32 {
  let x = abs(a);
  let s = x * x;
  let small = x + x * s * (-0.333332986f + s * (0.133319393f + s * (-0.0537851229f + s * (0.0208003167f + s * -0.00590017904f))));
  let big = 1f - 2f / (1f + exp_sum(2f * min(x, 10f), 0f, 0));
  return select(signed_f32(select(big, small, x < 0.6f), a), a, isnan_f32(a));
}
// Uses half the exponential, which is finite as long as the result is.
fn sinh_f32(a: f32) -> f32 {
  let s = a * a;
  let small = a + a * s * (0.166666672f + s * (0.00833331142f + s * (0.000198426351f + s * 2.78392554e-06f)));
  let h = exp_sum(abs(a), 0f, -1);
  return select(select(signed_f32(h - 0.25f / h, a), small, abs(a) < 1f), a, isnan_f32(a));
}
fn cosh_f32(a: f32) -> f32 {
  let h = exp_sum(abs(a), 0f, -1);
  return select(h + 0.25f / h, a, isnan_f32(a));
}
// log1p of a number that is scaled down by 2^24 if 1 is negligible.
fn log1p_scaled(a: f32, far: bool) -> f32 { return log1p_f32(select(a, a * 5.9604645e-08f, far)) + select(0f, 17.3286795f, far); }
fn asinh_f32(a: f32) -> f32 {
  let x = abs(a);
  let s = x * x;
  let far = x > 1e15f;
  let r = log1p_scaled(select(x + s / (1f + sqrt(1f + s)), x, far), far);
  return select(signed_f32(r, a), a, isnan_f32(a) || isinf_f32(a));
}
fn acosh_f32(a: f32) -> f32 {
  if (isnan_f32(a) || a < 1f) { return quiet_nan(); }
  let t = a - 1f;
  let far = a > 1e15f;
  let r = log1p_scaled(select(t + sqrt(2f * t + t * t), a, far), far);
  return select(r, a, isinf_f32(a));
}
fn atanh_f32(a: f32) -> f32 {
  let x = abs(a);
  if (isnan_f32(a) || x > 1f) { return quiet_nan(); }
  if (x == 1f) { return signed_f32(float_bits(0x7f800000u), a); }
  let q = 2f * x / (1f - x);
  return signed_f32(0.5f * log1p_f32(select(q, 2f * x + x * q, x < 0.5f)), a);
}

// 2.3 ulp at most: a polynomial in a * a below 1, and one of log(erfc(a)) above.
fn erf_f32(a: f32) -> f32 {
  let s = a * a;
  let small = a * (1.12837917f + s * (-0.376126271f + s * (0.112836002f + s * (-0.0268544446f
    + s * (0.00518953545f + s * (-0.000802084227f + s * 7.88912283e-05f))))));
  let x = min(abs(a), 4f);
  let q = 0.000106097556f + x * (-1.12920336f + x * (-0.633940247f + x * (-0.107667072f + x * (0.024748971f
    + x * (-0.004040365f + x * (0.000409590824f + x * -1.91305803e-05f))))));
  let big = 1f - exp_sum(q, 0f, 0);
  return select(select(signed_f32(big, a), small, abs(a) < 1f), a, isnan_f32(a));
}

// a^b for a positive finite a: log2(a) = k + 2 / ln 2 (s + s^3 / 3 + ...) with s = f / (2 + f). The logarithm and its product
// with b are sums of a number of 12 bits and a rest. So the exponent is correct to 2^-23, even if it is as large as 150.
fn pow_positive(a: f32, b: f32) -> f32 {
  let parts = log_parts(a);
  let f = parts.x;
  let inverse = 1f / (2f + f);
  let s = rounded_f32(f * inverse);  // kept separate: Mesa turns the sum below into (f + lost) * inverse
  let s1 = leading_f32(s);
  let f1 = leading_f32(f);
  let lost = (((f - 2f * s) - s1 * f1) - s1 * (f - f1)) - (s - s1) * f;
  let s2 = (s - s1) + lost * inverse;
  let z = s1 * s1 + s2 * (2f * s1 + s2);
  let cubic = (s1 + s2) * (z * (0.961796701f + z * (0.577078938f + z * (0.411915213f + z * 0.336777866f))));
  let first = s1 * 2.884765625f;
  let second = (s1 * 0.00062445679f + 2.88539004f * s2) + cubic;
  let high = leading_f32(parts.y + (first + second));
  let low = ((parts.y - high) + first) + second;
  let rough = b * (high + low);
  let n = round(clamp(rough, -200f, 200f));
  let b1 = leading_f32(b);
  let r = (b1 * high - n) + (b - b1) * high;
  let power = scaled_f32(1f + exp_small(r * 0.69314718f, b * low * 0.69314718f), i32(n));
  return select(select(power, 0f, rough < -151f), float_bits(0x7f800000u), rough > 128.5f);
}
fn pow_f32(a: f32, b: f32) -> f32 {
  if (b == 0f || a == 1f) { return 1f; }
  if (isnan_f32(a) || isnan_f32(b)) { return quiet_nan(); }
  if (b == 1f) { return a; }
  if (b == 2f) { return a * a; }
  if (b == 3f) { return a * a * a; }
  if (b == 0.5f && !isinf_f32(a)) { return select(sqrt(a), 0f, a == 0f); }
  if (b == -1f) { return div_f32(1f, a); }
  let whole = floor(b) == b;
  let odd = whole && abs(b) < 16777216f && fract(abs(b) * 0.5f) != 0f;
  let magnitude = abs(a);
  var r = 0f;
  if (magnitude == 0f) { r = select(0f, float_bits(0x7f800000u), b < 0f); }
  else if (isinf_f32(magnitude)) { r = select(float_bits(0x7f800000u), 0f, b < 0f); }
  else if (isinf_f32(b)) { r = select(0f, float_bits(0x7f800000u), (magnitude > 1f) == (b > 0f)); if (magnitude == 1f) { r = 1f; } }
  else { r = pow_positive(magnitude, b); }
  if (signbit_f32(a)) {
    if (!whole && magnitude != 0f && !isinf_f32(magnitude)) { return quiet_nan(); }
    if (odd) { return -r; }
  }
  return r;
}

// Sine and cosine of an eighth of a turn around 0, 0.15 ulp.
fn sin_small(r: f32) -> f32 {
  let s = r * r;
  return r + r * s * (-0.16666664f + s * (0.008332733f + s * -0.00019584828f));
}
fn cos_small(r: f32) -> f32 {
  let s = r * r;
  return 1f - 0.5f * s + s * s * (0.041666664f + s * (-0.0013888287f + s * 2.4544835e-05f));
}
// `a` minus `k` quarter turns. All parts of pi / 2 except the last have 8 bits, so that products with k below 65,536 are exact.
fn less_quarters(a: f32, k: f32) -> f32 {
  let first = rounded_f32(rounded_f32(a - k * 1.5703125f) - k * 0.0004825592041015625f);
  let second = rounded_f32(rounded_f32(first - k * 1.2665987014770508e-06f) - k * 9.89530235528946e-10f);
  return second - k * 2.56334407e-12f;
}
// 128 bits of 2 / pi from a word on; word 1 is the first after the point.
fn two_over_pi(word: u32) -> vec4<u32> {
  switch (word) {
    case 0u: { return vec4<u32>(0u, 0xa2f9836eu, 0x4e441529u, 0xfc2757d1u); }
    case 1u: { return vec4<u32>(0xa2f9836eu, 0x4e441529u, 0xfc2757d1u, 0xf534ddc0u); }
    case 2u: { return vec4<u32>(0x4e441529u, 0xfc2757d1u, 0xf534ddc0u, 0xdb629599u); }
    case 3u: { return vec4<u32>(0xfc2757d1u, 0xf534ddc0u, 0xdb629599u, 0x3c439041u); }
    default: { return vec4<u32>(0xf534ddc0u, 0xdb629599u, 0x3c439041u, 0xfe5163abu); }
  }
}
// (angle, quarter turns modulo 4) of a large number (Payne and Hanek, 1983). Only 64 bits of the product with 2 / pi are
// computed, those below the weight of 4. They depend on 96 bits of 2 / pi.
fn quarters_of_large(a: f32) -> vec2f {
  let bits = bitcast<u32>(a);
  let digits = (bits & 0x7fffffu) | 0x800000u;
  let place = ((bits >> 23u) & 0xffu) - 120u;
  let shift = place & 31u;
  let words = two_over_pi(place >> 5u);
  let next = vec3<u32>(words.yzw) >> vec3<u32>(32u - max(shift, 1u));
  let bits96 = select((words.xyz << vec3<u32>(shift)) | next, words.xyz, shift == 0u);
  let middle = wide_mul(digits, bits96.y);
  let low = middle.x + wide_mul(digits, bits96.z).y;
  let high = digits * bits96.x + middle.y + select(0u, 1u, low < middle.x);
  // Two bits of turns, 62 of the fraction. Above a half the next quarter is nearer.
  let up = (high >> 29u) & 1u;
  var fraction = vec2<u32>(low << 2u, (high << 2u) | (low >> 30u));
  if (up == 1u) { fraction = vec2<u32>(0u - fraction.x, ~fraction.y + select(0u, 1u, fraction.x == 0u)); }
  let zeros = countLeadingZeros(fraction.y);
  let top = select((fraction.y << zeros) | (fraction.x >> (32u - max(zeros, 1u))), fraction.x, zeros == 32u);
  // Times pi / 2; the constant is its product with 2^31.
  let angle = f32(wide_mul(select(top, fraction.y, zeros == 0u), 0xc90fdaa2u).y) * power_of_two(-31 - i32(zeros));
  let turns = (high >> 30u) + up;
  let negative = (up == 1u) != signbit_f32(a);
  return vec2f(select(angle, -angle, negative), f32(select(turns, 4u - turns, signbit_f32(a)) & 3u));
}
fn quarters_of(a: f32) -> vec2f {
  if (abs(a) >= 100000f) { return quarters_of_large(a); }
  let k = round(a * 0.63661977f);
  return vec2f(less_quarters(a, k), k);
}
// The sine of `a` advanced by `quarters`.
fn sine_f32(a: f32, quarters: u32) -> f32 {
  let parts = quarters_of(a);
  let q = bitcast<u32>(i32(parts.y)) + quarters;
  let v = select(sin_small(parts.x), cos_small(parts.x), (q & 1u) == 1u);
  let r = select(v, -v, (q & 2u) == 2u);
  return select(r, quiet_nan(), isinf_f32(a) || isnan_f32(a));
}
fn sin_f32(a: f32) -> f32 { return select(sine_f32(a, 0u), a, abs(a) < 2e-4f); }
fn cos_f32(a: f32) -> f32 { return sine_f32(a, 1u); }
fn tan_f32(a: f32) -> f32 {
  let parts = quarters_of(a);
  let x = parts.x;
  let s = x * x;
  let t = x + x * s * (0.333331555f + s * (0.133388311f + s * (0.0534088761f + s * (0.0244381912f + s * (0.00310756383f
    + s * 0.0093924934f)))));
  let r = select(t, -1f / t, (bitcast<u32>(i32(parts.y)) & 1u) == 1u);
  return select(select(r, a, abs(a) < 2e-4f), quiet_nan(), isinf_f32(a) || isnan_f32(a));
}
// The arc sine up to 1/2, to 0.7 ulp. Larger arguments are halved first.
fn asin_small(x: f32) -> f32 {
  let s = x * x;
  return x + x * s * (0.16666666f + s * (0.075000986f + s * (0.04459809f + s * (0.031115467f
    + s * (0.017081074f + s * 0.03380055f)))));
}
fn acos_f32(a: f32) -> f32 {
  let x = abs(a);
  if (isnan_f32(a) || x > 1f) { return quiet_nan(); }
  if (x <= 0.5f) { return 1.57079633f - asin_small(a); }
  let r = 2f * asin_small(sqrt(0.5f * (1f - x)));
  return select(r, 3.14159265f - r, a < 0f);
}
fn asin_f32(a: f32) -> f32 {
  let x = abs(a);
  if (isnan_f32(a) || x > 1f) { return quiet_nan(); }
  if (x <= 0.5f) { return asin_small(a); }
  return signed_f32(1.57079633f - 2f * asin_small(sqrt(0.5f * (1f - x))), a);
}
fn atan_f32(a: f32) -> f32 {
  let far = abs(a) > 1f;
  let x = select(abs(a), 1f / abs(a), far);
  let s = x * x;
  let r = x + x * s * (-0.333332986f + s * (0.19998531f + s * (-0.142640516f + s * (0.109511748f + s * (-0.0840047523f
    + s * (0.0579065457f + s * (-0.0311270021f + s * (0.0108873611f + s * -0.0017875476f))))))));
  return select(signed_f32(select(r, 1.57079633f - r, far), a), a, isnan_f32(a));
}
