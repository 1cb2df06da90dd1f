// Reads a Program from the JSON of a header, and checks everything before its use; the same as Python's `program/reading.py`.
// In: parsed JSON from an untrusted source. Out: a Program, or an Error that describes the fault. Invariants: every count and
// index in a Program is in range. Every expression is well formed, over names that are defined before it. No kernel writes a
// value that it must not write. The values of expressions depend on the inputs. `postfix` and `layout` bound them.

import { type Row, type Table, named } from './columns.js';
import { dtype, nbytes } from './dtypes.js';
import type { Check, Definition, Dispatch, Kernel, MatrixUnit, Program, Storage, Symbol, Target, Value, Weight } from './format.js';
import { ARITY, type Int, type Postfix, REPETITION } from './postfix.js';

const MOST = 2n ** 64n; // bound of the absolute values of all whole numbers in a file
const MOST_AXES = 64;
const MOST_TOKENS = 1 << 16; // per expression; many rows of an export may share one
const STORAGES: readonly Storage[] = ['INPUT', 'OUTPUT', 'WEIGHT', 'TEMP', 'HOST', 'STATE'];
const ACCESSES = ['read', 'read_write'] as const;

type Cell<T> = (it: unknown) => T;

/** Returns the Program of a header. */
export function programOf(header: unknown, target: Target): Program {
  const found = header as Record<string, unknown>;
  const of = new Expressions();
  const dims = list(of.read);
  const table = <Name extends Table, T>(name: Name, read: (row: Row<Name>) => T): T[] =>
    items(found[name]).map((row) => read(named(name, items(row))));
  const symbols = table('symbols', (it): Symbol => (
    { name: text(it.name), input: count(it.input), index: count(it.index), isElement: flag(it.is_element) }
  )); // prettier-ignore
  symbols.forEach((it) => of.know(it.name));
  const ofInputs = new Set(of.known);
  of.know(REPETITION);
  const definitions = of.definitions(found['definitions']);
  const before = new Set(of.known);
  const values = table('values', (it): Value => ({
    name: text(it.name), dtype: dtype(text(it.dtype)), shape: list(of.read, MOST_AXES)(it.shape), storage: oneOf(STORAGES)(it.storage),
    weight: Number(whole(it.weight)), elements: dims(it.elements),
  })); // prettier-ignore
  const dispatches = table('dispatches', (it): Dispatch => ({
    kernel: count(it.kernel), args: list(count)(it.args), uniforms: dims(it.uniforms), guards: dims(it.guards),
    workgroups: dims(it.workgroups), origin: list(text)(it.origin), operators: list(text)(it.operators), repeats: of.read(it.repeats),
    ranges: list((range) => (range === null ? null : pair(of.read)(range)))(it.ranges),
  })); // prettier-ignore
  const messageDefinitions = of.definitions(found['message_definitions']);
  const checks = table('checks', (it): Check => (
    { condition: of.read(it.condition), text: text(it.text), dims: dims(it.dims), limit: flag(it.limit) }
  )); // prettier-ignore
  for (const it of checks) only(before, it.condition);
  const program: Program = {
    name: text(found['name']),
    target, symbols, definitions, messageDefinitions,
    inputs: list(count)(found['inputs']),
    outputs: list(count)(found['outputs']),
    values,
    kernels: table('kernels', (it): Kernel => (
      { label: text(it.label), wgsl: list(text)(it.wgsl), bindings: list(oneOf(ACCESSES))(it.bindings), uniforms: count(it.uniforms) }
    )),
    dispatches, checks,
    aliases: list(pair(count))(found['aliases']),
    weights: weights(table('weights', (it) => it), values),
  }; // prettier-ignore
  check(program);
  for (const it of program.inputs) for (const extent of values[it]!.shape) only(ofInputs, extent);
  return program;
}

function weights(rows: readonly Row<'weights'>[], values: readonly Value[]): Weight[] {
  const names = new Map(values.map((it) => [it.weight, it.name]));
  return rows.map((it, k) => ({
    name: names.get(k) ?? '', offset: count(it.offset), bytes: count(it.nbytes), matrices: it.matrices && list(count)(it.matrices),
  })); // prettier-ignore
}

// ---- cells

function wrong(it: unknown, what: string): Error {
  return new Error(`${String(it).slice(0, 80)} ${what}`);
}

export function text(it: unknown): string {
  if (typeof it !== 'string') throw wrong(it, 'is not a string');
  return it;
}

export function flag(it: unknown): boolean {
  if (typeof it !== 'boolean') throw wrong(it, 'is not a boolean');
  return it;
}

function whole(it: unknown): Int {
  if (typeof it === 'bigint' ? it > -MOST && it < MOST : Number.isSafeInteger(it)) return it as Int;
  throw wrong(it, 'is not an integer');
}

export function count(it: unknown): number {
  if (!Number.isSafeInteger(it) || (it as number) < 0) throw wrong(it, 'is not a count');
  return it as number;
}

/** Returns a limit of an adapter. The largest 64-bit number is rounded. */
export function limit(it: unknown): number {
  if (whole(it) < 0) throw wrong(it, 'is not a limit');
  return Number(it);
}

/** Returns a unit. An unsupported one is detected when it is compared with those of a device. */
export function matrixUnit(it: unknown): MatrixUnit {
  const [m, n, k, operand, result, subgroup] = items(it);
  return [count(m), count(n), count(k), text(operand), text(result), count(subgroup)];
}

function items(it: unknown): readonly unknown[] {
  if (!Array.isArray(it)) throw wrong(it, 'is not an array');
  return it;
}

export function list<T>(of: Cell<T>, most = Infinity): Cell<T[]> {
  return (it) => {
    const all = items(it);
    if (all.length > most) throw wrong(all.length, 'axes are too many');
    return all.map((part) => of(part));
  };
}

function pair<T>(of: Cell<T>): Cell<readonly [T, T]> {
  return (it) => {
    if (items(it).length !== 2) throw wrong(it, 'is not a pair');
    const [first, second] = items(it);
    return [of(first), of(second)];
  };
}

function oneOf<T>(all: readonly T[]): Cell<T> {
  return (it) => {
    if (!all.includes(it as T)) throw wrong(it, `is not one of ${all.join(', ')}`);
    return it as T;
  };
}

// ---- expressions

/** Reads expressions over the names that are `known` so far. */
class Expressions {
  readonly known = new Set<string>();
  /** Checked expressions. Many rows of an export share one. */
  readonly #read = new Set<unknown>();

  know(name: string): void {
    this.known.add(`$${name}`);
  }

  readonly read = (it: unknown): Postfix => {
    if (!Array.isArray(it)) return whole(it);
    if (!this.#read.has(it)) this.#check(it);
    this.#read.add(it);
    return it as Postfix;
  };

  /** Reads named expressions, each over names that are known before it, and adds their names. */
  definitions(rows: unknown): Definition[] {
    return items(rows).map((row) => {
      if (items(row).length !== 2) throw wrong(row, 'is not a definition');
      const [name, expression] = items(row);
      const found = [text(name), this.read(expression)] as const;
      this.know(found[0]);
      return found;
    });
  }

  #check(tokens: readonly unknown[]): void {
    if (tokens.length > MOST_TOKENS) throw wrong(tokens, 'is too long');
    let depth = 0;
    for (const token of tokens) {
      if (typeof token !== 'string') {
        whole(token);
        depth++;
      } else if (this.known.has(token)) depth++;
      else {
        const operands = ARITY.get(token);
        if (!operands) throw wrong(token, token.startsWith('$') ? 'is not known' : 'is not an operation');
        depth -= operands - 1;
        if (depth < 1) throw wrong(tokens, 'lacks an operand');
      }
    }
    if (depth !== 1) throw wrong(tokens, 'is not one value');
  }
}

/** Raises an error if an expression uses other names. */
function only(names: ReadonlySet<string>, dim: Postfix): void {
  if (typeof dim !== 'object') return;
  for (const it of dim) if (typeof it === 'string' && it.startsWith('$') && !names.has(it)) throw wrong(it, 'is not known');
}

// ---- consistency

function check(program: Program): void {
  const { values, kernels, inputs, outputs } = program;
  const value = (k: number, ...storages: Storage[]): Value => {
    const found = values[k];
    if (!found || (storages.length && !storages.includes(found.storage))) throw wrong(k, `is not a value of ${storages.join(', ')}`);
    return found;
  };
  for (const [place, numbers, known] of [['INPUT', inputs, []], ['OUTPUT', outputs, ['HOST']]] as const) {
    const found = numbers.filter((k) => value(k, place, ...known).storage === place).length;
    const own = values.filter((it) => it.storage === place).length;
    if (new Set(numbers).size !== numbers.length || own !== found) throw wrong(numbers, `are not all ${place}`);
  }
  for (const { name, dtype: type, shape, storage, weight: k, elements } of values) {
    const weight = program.weights[k];
    const state = storage === 'STATE' && type.name === 'uint32' && shape.length === 1 && shape[0] === 4;
    const u32 = elements.length === 4 && elements.every((it) => (it as number) >>> 0 === it);
    const numbers = storage === 'HOST' ? type.bits > 7 : !elements.length || (state && u32);
    const fits = (storage === 'WEIGHT') === k >= 0 && (k < 0) === !weight && (type.bits || storage === 'INPUT') && numbers && state === (storage === 'STATE');
    // A weight has a known size, equal to its bytes.
    if (!fits || (weight && nbytes(type, shape.reduce<number>((product, it) => product * Number(it), 1)) !== weight.bytes)) {
      throw wrong(name, `is not a value of ${storage} and ${type.name}`);
    }
  }
  for (const { name, input, index, isElement } of program.symbols) {
    const source = value(inputs[input]!, 'INPUT');
    if (isElement ? !/^(u?int|float(32|16)$|bool)/.test(source.dtype.name) : index >= source.shape.length) throw wrong(name, 'has no axis');
  }
  for (const it of program.dispatches) {
    const kernel = kernels[it.kernel];
    if (!kernel) throw wrong(it.kernel, 'is not a kernel');
    const variants = kernel.wgsl.length;
    const fits = variants && it.guards.length === variants && it.workgroups.length === variants && it.uniforms.length === kernel.uniforms;
    const bound = it.args.length === kernel.bindings.length && [0, it.args.length].includes(it.ranges.length);
    if (!fits || !bound) throw wrong(kernel.label, 'does not fit its dispatch');
    it.args.forEach((arg, k) => {
      const { dtype: type } = value(arg, ...(kernel.bindings[k] === 'read' ? STORAGES : (['OUTPUT', 'TEMP', 'STATE'] as const)));
      if (!type.bits) throw wrong(kernel.label, 'reads strings');
    });
  }
  for (const it of program.checks) {
    const places = it.text.replace(/\{\{|\}\}/g, '').match(/\{\}|[{}]/g) ?? [];
    if (places.length !== it.dims.length || places.some((place) => place !== '{}')) throw wrong(it.text, 'has wrong placeholders');
  }
  for (const [output, input] of program.aliases) {
    if (value(output, 'OUTPUT').dtype.name !== value(input, 'INPUT').dtype.name) throw wrong(output, 'and its alias differ in type');
  }
}
