// Integers of 128 bits, which integer reductions accumulate: two's complement in four words, the lowest first. They are the same
// for both implementations of 64-bit integers. Squares and their sums are unsigned.
fn i128_of_u32(a: u32) -> vec4<u32> { return vec4<u32>(a, 0u, 0u, 0u); }
fn i128_of_i32(a: i32) -> vec4<u32> { return vec4<u32>(bitcast<u32>(a), vec3<u32>(bitcast<u32>(a >> 31u))); }
// 1 if the sum `sum`, with the term `a`, overflowed its word.
fn carry_u32(sum: u32, a: u32) -> u32 { return select(0u, 1u, sum < a); }
fn add_i128(a: vec4<u32>, b: vec4<u32>) -> vec4<u32> {
  let s = a + b;
  let c = select(vec4<u32>(), vec4<u32>(1u), s < a);
  let y = s.y + c.x;
  let z0 = c.y + carry_u32(y, s.y);
  let z = s.z + z0;
  let w = s.w + c.z + carry_u32(z, s.z);
  return vec4<u32>(s.x, y, z, w);
}
fn neg_i128(a: vec4<u32>) -> vec4<u32> { return add_i128(~a, vec4<u32>(1u, 0u, 0u, 0u)); }
fn negative_i128(a: vec4<u32>) -> bool { return (a.w >> 31u) != 0u; }
fn abs_i128(a: vec4<u32>) -> vec4<u32> { return select(a, neg_i128(a), negative_i128(a)); }
// For unsigned numbers.
fn below_i128(a: vec4<u32>, b: vec4<u32>) -> bool {
  if (a.w != b.w) { return a.w < b.w; }
  if (a.z != b.z) { return a.z < b.z; }
  return a.y < b.y || (a.y == b.y && a.x < b.x);
}
fn less_i128(a: vec4<u32>, b: vec4<u32>) -> bool {
  let sign = vec4<u32>(0u, 0u, 0u, 0x80000000u);
  return below_i128(a ^ sign, b ^ sign);
}
fn clamp_i128(a: vec4<u32>, low: vec4<u32>, high: vec4<u32>) -> vec4<u32> {
  return select(select(a, high, less_i128(high, a)), low, less_i128(a, low));
}
// The unsigned product of the lower halves.
fn times_i128(a: vec4<u32>, b: vec4<u32>) -> vec4<u32> {
  let ends = vec4<u32>(wide_mul(a.x, b.x), wide_mul(a.y, b.y));
  let one = vec4<u32>(0u, wide_mul(a.x, b.y), 0u);
  return add_i128(add_i128(ends, one), vec4<u32>(0u, wide_mul(a.y, b.x), 0u));
}
// A product of numbers below 2^64 in magnitude. Larger products saturate at that bound, so that order makes no difference.
fn bounded_product_i128(a: vec4<u32>, b: vec4<u32>) -> vec4<u32> {
  let p = times_i128(abs_i128(a), abs_i128(b));
  let size = select(p, vec4<u32>(0xffffffffu, 0xffffffffu, 0u, 0u), (p.z | p.w) != 0u);
  return select(size, neg_i128(size), negative_i128(a) != negative_i128(b));
}
// The square of a number below 2^64 in magnitude.
fn square_i128(a: vec4<u32>) -> vec4<u32> { let size = abs_i128(a); return times_i128(size, size); }
// An unsigned sum that saturates.
fn bounded_sum_i128(a: vec4<u32>, b: vec4<u32>) -> vec4<u32> {
  let s = add_i128(a, b);
  return select(s, vec4<u32>(0xffffffffu), below_i128(s, a));
}
// An unsigned number as a signed one, saturated.
fn signed_i128(a: vec4<u32>) -> vec4<u32> {
  return select(a, vec4<u32>(vec3<u32>(0xffffffffu), 0x7fffffffu), negative_i128(a));
}
fn last_bit_i128(a: vec4<u32>) -> u32 {
  if (a.w != 0u) { return 96u + firstLeadingBit(a.w); }
  if (a.z != 0u) { return 64u + firstLeadingBit(a.z); }
  if (a.y != 0u) { return 32u + firstLeadingBit(a.y); }
  return firstLeadingBit(max(a.x, 1u));
}
// The integer part of the root of an unsigned number, two bits at a time.
fn root_i128(a: vec4<u32>) -> vec4<u32> {
  var root = vec4<u32>();
  var rest = vec4<u32>();
  for (var at = i32(last_bit_i128(a) & ~1u); at >= 0; at -= 2) {
    let two = (a[u32(at) / 32u] >> (u32(at) % 32u)) & 3u;
    rest = (rest << vec4<u32>(2u)) | vec4<u32>(two, rest.xyz >> vec3<u32>(30u));
    let next = vec4<u32>(root.x << 2u, (root.yzw << vec3<u32>(2u)) | (root.xyz >> vec3<u32>(30u))) | vec4<u32>(1u, 0u, 0u, 0u);
    root = vec4<u32>(root.x << 1u, (root.yzw << vec3<u32>(1u)) | (root.xyz >> vec3<u32>(31u)));
    if (!below_i128(rest, next)) {
      rest = add_i128(rest, neg_i128(next));
      root.x |= 1u;
    }
  }
  return root;
}
// a / n, n below 2^32, truncated towards zero; 0 for n = 0.
fn quotient_i128(a: vec4<u32>, n: vec4<u32>) -> vec4<u32> {
  let size = abs_i128(a);
  var quotient = vec4<u32>();
  var rest = 0u;
  for (var at = i32(last_bit_i128(size)); at >= 0 && n.x != 0u; at--) {
    let beyond = rest >> 31u;
    rest = (rest << 1u) | ((size[u32(at) / 32u] >> (u32(at) % 32u)) & 1u);
    if (beyond != 0u || rest >= n.x) {
      rest -= n.x;
      quotient[u32(at) / 32u] |= 1u << (u32(at) % 32u);
    }
  }
  return select(quotient, neg_i128(quotient), negative_i128(a) != negative_i128(n));
}
// The integer part of the natural logarithm of a number below 2^96, or the least number if there is none. The table has the least
// integers with logarithms of at least 1, 2, 3...
fn log_i128(a: vec4<u32>) -> vec4<u32> {
  if (negative_i128(a) || (a.x | a.y | a.z | a.w) == 0u) { return vec4<u32>(0u, 0u, 0u, 0x80000000u); }
  var least = array<vec3<u32>, 66>(
    vec3<u32>(3u, 0u, 0u), vec3<u32>(8u, 0u, 0u), vec3<u32>(0x15u, 0u, 0u),
    vec3<u32>(0x37u, 0u, 0u), vec3<u32>(0x95u, 0u, 0u), vec3<u32>(0x194u, 0u, 0u),
    vec3<u32>(0x449u, 0u, 0u), vec3<u32>(0xba5u, 0u, 0u), vec3<u32>(0x1fa8u, 0u, 0u),
    vec3<u32>(0x560bu, 0u, 0u), vec3<u32>(0xe9e3u, 0u, 0u), vec3<u32>(0x27bc3u, 0u, 0u),
    vec3<u32>(0x6c02eu, 0u, 0u), vec3<u32>(0x1259adu, 0u, 0u), vec3<u32>(0x31e19au, 0u, 0u),
    vec3<u32>(0x87975fu, 0u, 0u), vec3<u32>(0x1709349u, 0u, 0u), vec3<u32>(0x3e9e442u, 0u, 0u),
    vec3<u32>(0xaa36c7du, 0u, 0u), vec3<u32>(0x1ceb088cu, 0u, 0u), vec3<u32>(0x4e9b87f7u, 0u, 0u),
    vec3<u32>(0xd5ad6dcfu, 0u, 0u), vec3<u32>(0x44d5e677u, 2u, 0u), vec3<u32>(0x2adfed52u, 6u, 0u),
    vec3<u32>(0xc3d3920au, 0x10u, 0u), vec3<u32>(0x9264d2d5u, 0x2du, 0u), vec3<u32>(0xe08bdfdau, 0x7bu, 0u),
    vec3<u32>(0xbba37964u, 0x150u, 0u), vec3<u32>(0x55c8c639u, 0x393u, 0u), vec3<u32>(0x23857615u, 0x9b8u, 0u),
    vec3<u32>(0x765d8ce0u, 0x1a6bu, 0u), vec3<u32>(0xff312d99u, 0x47d0u, 0u), vec3<u32>(0x9a5392bdu, 0xc337u, 0u),
    vec3<u32>(0xc5e743dfu, 0x212a7u, 0u), vec3<u32>(0x886f2357u, 0x5a278u, 0u), vec3<u32>(0xd0e906bcu, 0xf510au, 0u),
    vec3<u32>(0x76340034u, 0x29a27fu, 0u), vec3<u32>(0x185f319du, 0x712ccdu, 0u), vec3<u32>(0x282a5193u, 0x133a43du, 0u),
    vec3<u32>(0x2f2e5d52u, 0x34441a7u, 0u), vec3<u32>(0x6fb43126u, 0x8e12e44u, 0u), vec3<u32>(0x20115938u, 0x18232558u, 0u),
    vec3<u32>(0x7ae1c502u, 0x419ca8f2u, 0u), vec3<u32>(0x9bc18ff4u, 0xb25a0e36u, 0u), vec3<u32>(0xe49be1b5u, 0xe4cf766fu, 1u),
    vec3<u32>(0x20f8d72au, 0x25d9ef01u, 5u), vec3<u32>(0x5dbac4a8u, 0xfe4a8f5cu, 0xdu), vec3<u32>(0x4a9675eau, 0x9ad5d94u, 0x26u),
    vec3<u32>(0x9427e1eu, 0x65c04221u, 0x67u), vec3<u32>(0xb45664d8u, 0x103e4080u, 0x119u), vec3<u32>(0x8c16a04du, 0x279a228u, 0x2fcu),
    vec3<u32>(0xa5f5e7ecu, 0xcb294703u, 0x81cu), vec3<u32>(0x308d3d7bu, 0x4f6fdac7u, 0x160du), vec3<u32>(0x75b81c2fu, 0x8b5e2f74u, 0x3bf1u),
    vec3<u32>(0xc5b1baa3u, 0x83b6b0b4u, 0xa2f1u), vec3<u32>(0x73071780u, 0x16a6e0dau, 0x1baedu), vec3<u32>(0x4c6610ddu, 0x7faf7868u, 0x4b3ffu),
    vec3<u32>(0x8735190fu, 0x55f7e5b4u, 0xcc8ceu), vec3<u32>(0x96f3d1efu, 0xb932a7c5u, 0x22c068u), vec3<u32>(0x24caf2a7u, 0x7714f199u, 0x5e76f2u),
    vec3<u32>(0xca837587u, 0xd4640970u, 0x100c810u), vec3<u32>(0x4d2d5d55u, 0x298b84efu, 0x2ba0127u), vec3<u32>(0x62372709u, 0x3c41e9eeu, 0x7695f7au),
    vec3<u32>(0x5ce3d5b5u, 0xf597cd20u, 0x1425982cu), vec3<u32>(0xe1407e53u, 0x74bc6165u, 0x36c3cb94u), vec3<u32>(0xf0ca2fadu, 0xfe7c35d5u, 0x94ddc12eu)
  );
  var log = 0u;
  while (log < 66u && !below_i128(a, vec4<u32>(least[log], 0u))) { log++; }
  return vec4<u32>(log, 0u, 0u, 0u);
}
