// The discrete Fourier transform of any length in O(n log n): powers of two by halving, other lengths as a convolution with
// such a length (Bluestein, 1970).

type Complex = readonly [real: Float64Array, imaginary: Float64Array];

/**
 * In place, for a length that is a power of two. `sign` is -1 for the forward and 1 for the inverse transform, without the
 * division.
 */
function halving([real, imaginary]: Complex, sign: number): void {
  const { length } = real;
  for (let i = 1, j = 0; i < length; i++) {
    let bit = length >> 1;
    for (; j & bit; bit >>= 1) j ^= bit;
    j ^= bit;
    if (i < j) for (const it of [real, imaginary]) [it[i], it[j]] = [it[j]!, it[i]!];
  }
  for (let span = 1; span < length; span *= 2) {
    for (let k = 0; k < span; k++) {
      const angle = (sign * Math.PI * k) / span;
      const [c, s] = [Math.cos(angle), Math.sin(angle)];
      for (let i = k; i < length; i += 2 * span) {
        const j = i + span;
        const re = real[j]! * c - imaginary[j]! * s;
        const im = real[j]! * s + imaginary[j]! * c;
        [real[j], imaginary[j]] = [real[i]! - re, imaginary[i]! - im];
        real[i]! += re;
        imaginary[i]! += im;
      }
    }
  }
}

/** Returns the transform of `length` numbers. */
export function spectrum(
  length: number, real: (n: number) => number, imaginary: (n: number) => number = () => 0,
): Complex {
  const whole = (size: number): Complex => [new Float64Array(size), new Float64Array(size)];
  if ((length & (length - 1)) === 0) {
    const out = whole(length);
    for (let n = 0; n < length; n++) [out[0][n], out[1][n]] = [real(n), imaginary(n)];
    halving(out, -1);
    return out;
  }
  const size = 2 ** Math.ceil(Math.log2(2 * length));
  const [a, b] = [whole(size), whole(size)];
  // n * n modulo 2 * length; otherwise the angle loses precision.
  const angle = (n: number): number => (Math.PI * ((n * n) % (2 * length))) / length;
  for (let n = 0; n < length; n++) {
    const [c, s] = [Math.cos(angle(n)), Math.sin(angle(n))];
    a[0][n] = real(n) * c + imaginary(n) * s;
    a[1][n] = imaginary(n) * c - real(n) * s;
    for (const place of [n, (size - n) % size]) [b[0][place], b[1][place]] = [c, s];
  }
  halving(a, -1);
  halving(b, -1);
  for (let n = 0; n < size; n++) {
    const re = a[0][n]! * b[0][n]! - a[1][n]! * b[1][n]!;
    a[1][n] = a[0][n]! * b[1][n]! + a[1][n]! * b[0][n]!;
    a[0][n] = re;
  }
  halving(a, 1);
  const out = whole(length);
  for (let n = 0; n < length; n++) {
    const [c, s] = [Math.cos(angle(n)), Math.sin(angle(n))];
    out[0][n] = (a[0][n]! * c + a[1][n]! * s) / size;
    out[1][n] = (a[1][n]! * c - a[0][n]! * s) / size;
  }
  return out;
}
