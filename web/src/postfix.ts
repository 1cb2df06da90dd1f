// The dims of a Program, and their evaluation for a layout. An expression is a number or a list of tokens in postfix order,
// such as `["$batch", 12, "*", 1, "+"]`. A symbol has the prefix `$`. Nothing is compiled to code, so that a strict content
// security policy allows it. Invariants: results are exact, as in Python; integers beyond the safe range are bigints. No number
// has more than MOST_BITS. A few products of products could otherwise have millions.

import { LimitError } from './errors.js';

/** An exact integer: a number if that is safe, otherwise a bigint. */
export type Int = number | bigint;
export type Postfix = Int | readonly (Int | string)[];

/** The symbol that numbers the runs of a repeated dispatch. */
export const REPETITION = '@repetition';
const MOST_BITS = 1024; // more than any product of a tensor's extents needs
const BEYOND = 2n ** BigInt(MOST_BITS);
const LEAST = BigInt(Number.MIN_SAFE_INTEGER);
const MOST = BigInt(Number.MAX_SAFE_INTEGER);

/** Returns the same integer, as a number if that is safe. */
export function exact(value: bigint): Int {
  return value >= LEAST && value <= MOST ? Number(value) : value;
}

function floorDivide(a: bigint, b: bigint): bigint {
  const quotient = a / b;
  return a % b !== 0n && a < 0n !== b < 0n ? quotient - 1n : quotient;
}

/** Returns the f32 with these bits. */
function fromBits(bits: number): number {
  return new Float32Array(Uint32Array.of(bits).buffer)[0]!;
}

// For numbers or bigints.
const BOTH: Record<string, (a: number, b: number) => number> = { '+': (a, b) => a + b, '*': (a, b) => a * b };
// For numbers. A result that is not a safe integer is calculated again by the second table.
const FAST: typeof BOTH = {
  ...BOTH,
  '//': (a, b) => (b ? Math.floor(a / b) : 0),
  '%': (a, b) => (b ? a - b * Math.floor(a / b) : 0),
  tdiv: (a, b) => (b ? Math.trunc(a / b) : 0),
};
const WIDE: Record<string, (a: bigint, b: bigint) => bigint> = {
  ...(BOTH as object),
  '//': (a, b) => (b ? floorDivide(a, b) : 0n),
  '%': (a, b) => (b ? a - b * floorDivide(a, b) : 0n),
  tdiv: (a, b) => (b ? a / b : 0n),
};
// Numbers and bigints compare exactly.
const CHOICES: Record<string, (a: Int, b: Int) => Int> = {
  min: (a, b) => (b < a ? b : a),
  max: (a, b) => (b > a ? b : a),
  '<': (a, b) => (a < b ? 1 : 0),
  '<=': (a, b) => (a <= b ? 1 : 0),
  '==': (a, b) => (a == b ? 1 : 0),
  bcast: (a, b) => (a === 1 ? b : a),
  scaled: (a, b) => {
    const result = Math.trunc(Math.fround(Math.fround(Number(a)) * fromBits(Number(BigInt.asUintN(32, BigInt(b))))));
    return Number.isFinite(result) ? exact(BigInt(result)) : 0; // infinity and NaN become 0
  },
};
/** The number of operands of each operation. */
export const ARITY: ReadonlyMap<string, number> = new Map([
  ...[...Object.keys(FAST), ...Object.keys(CHOICES)].map((it) => [it, 2] as const), ['?', 3],
]); // prettier-ignore
// A quotient of larger numbers may round up to the next integer. Below this, floor and trunc are exact.
const DIVISIBLE = 2 ** 52;

function calculate(operation: string, a: Int, b: Int): Int {
  const choice = CHOICES[operation];
  if (choice) return choice(a, b);
  const fast = FAST[operation]!;
  if (typeof a === 'number' && typeof b === 'number' && Math.abs(a) < DIVISIBLE && Math.abs(b) < DIVISIBLE) {
    const result = fast(a, b);
    if (Number.isSafeInteger(result)) return result + 0; // not -0
  }
  const result = WIDE[operation]!(BigInt(a), BigInt(b));
  const size = result < 0n ? -result : result;
  if (size < BEYOND) return exact(result);
  throw new LimitError(`a size is a number of ${size.toString(2).length} bits, and at most ${MOST_BITS} are calculated with`);
}

/** Evaluates an expression that `reading` has checked. `known` has the value of every symbol in it, by name without `$`. */
export function evaluate(expression: Postfix, known: ReadonlyMap<string, Int>): Int {
  if (typeof expression !== 'object') return expression;
  const stack: Int[] = [];
  for (const token of expression) {
    if (typeof token !== 'string') stack.push(token);
    else if (token.startsWith('$')) stack.push(known.get(token.slice(1))!);
    else {
      const last = stack.pop()!;
      const before = stack.pop()!;
      stack.push(token === '?' ? (stack.pop() ? before : last) : calculate(token, before, last));
    }
  }
  return stack[0]!;
}

/** Returns a function that evaluates expressions, each once. `found` has known values. */
export function valuesOf(known: ReadonlyMap<string, Int>, found = new Map<Postfix, Int>()): (expression: Postfix) => Int {
  return (expression) => {
    if (typeof expression !== 'object') return expression;
    let value = found.get(expression);
    if (value === undefined) found.set(expression, (value = evaluate(expression, known)));
    return value;
  };
}

/** Returns the symbols in expressions, without `$`. */
export function mentioned(expressions: Iterable<Postfix>): Set<string> {
  const names = new Set<string>();
  for (const expression of expressions) {
    if (typeof expression !== 'object') continue;
    for (const token of expression) if (typeof token === 'string' && token.startsWith('$')) names.add(token.slice(1));
  }
  return names;
}

/** Returns the definitions that `names` need, in order. Adds the symbols in these to `names`. */
export function needed(
  names: Set<string>,
  definitions: readonly (readonly [string, Postfix])[],
): (readonly [string, Postfix])[] {
  const kept: (readonly [string, Postfix])[] = [];
  for (const definition of [...definitions].reverse()) {
    if (!names.has(definition[0])) continue;
    kept.push(definition);
    for (const name of mentioned([definition[1]])) names.add(name);
  }
  return kept.reverse();
}

/** Returns `symbols` with the values of `definitions` added. */
export function defined(
  symbols: ReadonlyMap<string, Int>,
  definitions: readonly (readonly [string, Postfix])[],
): Map<string, Int> {
  const known = new Map(symbols);
  for (const [name, expression] of definitions) known.set(name, evaluate(expression, known));
  return known;
}
