// Everything of a Program that depends on shapes, as plain numbers: a pure function of the program and the values of its
// symbols. Parts without a changed symbol are not calculated again. Out: shapes, sizes, uniforms, variants, grids, and slots of
// memory from liveness. Python has the same function. Both are tested with the same files (tests/program/golden).

import { InputError, LimitError } from './errors.js';
import { type Int, type Postfix, REPETITION, defined, evaluate, mentioned, needed, valuesOf } from './postfix.js';
import { type BindingRange, type Check, type Dispatch, type Program, valueBytes } from './program.js';

/** WebGPU's limit per dimension of a grid. */
const MAX_GROUPS = 65535;
/** Per run: a million dispatches take minutes to submit. */
const MOST_STEPS = 2 ** 20;
/** In bytes: buffers end with a whole word. */
const PADDED = 3;
/** The number of sizes in a message. */
const SHOWN = 12;

export type Grid = readonly [number, number, number];

/**
 * One run of a dispatch. `uniforms` are its u32 numbers. `ranges` has the bound bytes per argument, null for all of it. It is
 * empty if all are bound whole. A repeated dispatch is one step per repetition, numbered by `repetition`.
 */
export interface Step {
  readonly dispatch: number;
  readonly variant: number;
  readonly grid: Grid;
  readonly uniforms: readonly number[];
  readonly ranges: readonly BindingRange<number>[];
  readonly repetition: number;
  readonly repeats: number;
}

export interface Layout {
  /** By value number. */
  readonly shapes: readonly (readonly number[])[];
  readonly nbytes: readonly number[];
  /** The numbers of every HOST value, by value number. */
  readonly elements: ReadonlyMap<number, readonly Int[]>;
  readonly steps: readonly Step[];
  /** Outputs, each with the input that it begins as, without empty ones. */
  readonly aliases: readonly (readonly [output: number, input: number])[];
}

/** Makes the layouts of one program. Work that does not depend on symbols is done once. */
export class Layouts {
  readonly #program: Program;
  readonly #definitions;
  /** The definitions that depend on the number of a repetition. */
  readonly #repeated;
  /** The values of symbols and definitions for the last layout, and those of expressions. Empty after an error. */
  readonly #known = new Map<string, Int>();
  readonly #found = new Map<Postfix, Int>();
  #last: Layout | undefined;
  /** The steps of each dispatch in it. */
  #stepsOf: (readonly Step[])[] = [];
  /** Returns the parts that depend on symbols. Without it, everything is calculated for each layout. */
  parts: ((program: Program, definitions: Definitions, names: ReadonlySet<string>) => Parts) | undefined;

  constructor(program: Program) {
    this.#program = program;
    const names = mentioned(expressions(program));
    this.#definitions = needed(names, program.definitions);
    const counting = new Set([REPETITION]);
    this.#repeated = this.#definitions.filter(([name, expression]) => {
      const counts = [...mentioned([expression])].some((it) => counting.has(it));
      if (counts) counting.add(name);
      return counts;
    });
  }

  /**
   * Returns the layout for `symbols`, a value for each of the program's. Shapes and steps that have not changed since the last
   * layout are the same objects. Raises InputError or LimitError if a check of the program fails.
   */
  layout(symbols: readonly Int[]): Layout {
    const [program, known] = [this.#program, this.#known];
    const changed = program.symbols.flatMap(({ name }, k) => (known.get(name) === symbols[k] ? [] : name));
    const parts = this.#last && this.parts?.(program, this.#definitions, new Set(changed));
    for (const it of parts?.expressions ?? [...this.#found.keys()]) this.#found.delete(it);
    known.set(REPETITION, 0);
    program.symbols.forEach(({ name }, k) => known.set(name, symbols[k]!));
    try {
      for (const [name, it] of parts?.definitions ?? this.#definitions) known.set(name, evaluate(it, known));
      return (this.#last = this.#made(symbols, this.#last, parts));
    } catch (error) {
      known.clear();
      this.#found.clear();
      this.#last = undefined;
      throw error;
    }
  }

  #made(symbols: readonly Int[], last: Layout | undefined, parts: Parts | undefined): Layout {
    const program = this.#program;
    const of = valuesOf(this.#known, this.#found);
    const shapes = program.values.map((value, k) => (parts?.shapes[k] === false ? last!.shapes[k]! : value.shape.map((it) => Number(of(it)))));
    program.values.forEach(({ name, storage, elements: { length } }, k) => {
      if (storage !== 'HOST' || shapes[k]!.reduce((product, extent) => product * extent, 1) === length) return;
      throw new InputError(`'${name}' has ${length} elements and the shape [${shapes[k]!.join(', ')}]`);
    });
    this.#check(of, symbols, shapes);
    const sizes = shapes.map((shape, k) => (shape === last?.shapes[k] ? last!.nbytes[k]! : valueBytes(program.values[k]!, shape)));
    const elements = new Map<number, Int[]>();
    program.values.forEach((value, k) => {
      if (value.storage === 'HOST') elements.set(k, value.elements.map(of));
    });
    const steps: Step[] = [];
    program.dispatches.forEach((_, k) => {
      const same = parts?.dispatches[k] === false && this.#stepsOf[k]!.length <= MOST_STEPS - steps.length;
      const made = same ? this.#stepsOf[k]! : (this.#stepsOf[k] = this.#steps(k, of, sizes, symbols, steps.length));
      for (const it of made) steps.push(it);
    });
    const aliases = program.aliases.filter(([a, b]) => sizes[a] && shapes[a]!.join() === shapes[b]!.join());
    return { shapes, nbytes: sizes, elements, steps, aliases };
  }

  /** Returns the steps of a dispatch, after `before` steps of others. */
  #steps(dispatch: number, of: (it: Postfix) => Int, sizes: readonly number[], symbols: readonly Int[], before: number): Step[] {
    const it = this.#program.dispatches[dispatch]!;
    const { bindings, label } = this.#program.kernels[it.kernel]!;
    // The compiler makes a check for each of these.
    const noWay = (problem: string): LimitError => new LimitError(`the kernel '${label}' ${problem}; ${this.#given(symbols)}`);
    const variant = it.guards.findIndex(of);
    if (variant < 0) throw noWay('has no variant');
    const count = Number(of(it.workgroups[variant]!));
    // Nothing runs if all results are empty.
    if (!count || !it.args.some((arg, k) => bindings[k] === 'read_write' && sizes[arg])) return [];
    if (!(count > 0 && count <= MAX_GROUPS * MAX_GROUPS)) throw noWay(`would be ${of(it.workgroups[variant]!)} workgroups`);
    const grid = foldGrid(count);
    const repeats = Math.max(1, Number(of(it.repeats)));
    if (repeats > MOST_STEPS - before) {
      throw noWay(`would run ${of(it.repeats)} times, in a run of ${MOST_STEPS} dispatches at most`);
    }
    return Array.from({ length: repeats }, (_, repetition) => {
      const then = repetition ? valuesOf(defined(new Map(this.#known).set(REPETITION, repetition), this.#repeated)) : of;
      const uniforms = it.uniforms.map((uniform) => u32(then(uniform)));
      const ranges = bytesBound(it, then);
      ranges.forEach((range, k) => {
        const [from, bytes] = range ?? [0, 0];
        const size = sizes[it.args[k]!]!;
        if (!range || !size || (from >= 0 && bytes >= 0 && from + bytes <= size + PADDED)) return;
        throw noWay(`would bind the bytes (${from}, ${bytes}) of the ${size} of '${this.#program.values[it.args[k]!]!.name}'`);
      });
      return { dispatch, variant, grid, uniforms, ranges, repetition, repeats };
    });
  }

  #check(
    of: (it: Postfix) => Int,
    symbols: readonly Int[],
    shapes: readonly (readonly number[])[],
  ): void {
    const failed = this.#program.checks.filter((check) => !of(check.condition));
    // First the faults of any program.
    const first = failed.find((check) => !check.limit) ?? failed[0];
    if (first) {
      const Type = first.limit ? LimitError : InputError;
      throw new Type(`${this.#messageOf(first, symbols)}; ${this.#given(symbols)}`);
    }
    const wrong = shapes.findIndex((shape) => shape.some((extent) => extent < 0));
    if (wrong >= 0) {
      const name = this.#program.values[wrong]!.name;
      throw new InputError(
        `${name || 'a result'} would have shape [${shapes[wrong]!.join(', ')}]; ${this.#given(symbols)}`,
      );
    }
  }

  /** Formats the message of a check with the sizes of this run. */
  #messageOf(check: Check, symbols: readonly Int[]): string {
    const { definitions, messageDefinitions } = this.#program;
    const given = new Map(this.#program.symbols.map((it, k) => [it.name, symbols[k]!]));
    const known = defined(given, needed(mentioned(check.dims), [...definitions, ...messageDefinitions]));
    const dims = check.dims.map(valuesOf(known));
    let next = 0;
    return check.text.replace(/\{\{|\}\}|\{\}/g, (place) => (place === '{}' ? String(dims[next++]) : place[0]!));
  }

  /** The sizes and the elements of the inputs of this run, in words. */
  #given(symbols: readonly Int[]): string {
    const { inputs, values } = this.#program;
    const given = this.#program.symbols.map((symbol, k) => {
      const name = values[inputs[symbol.input]!]!.name;
      if (symbol.isElement) return `${name}[${symbol.index}] = ${symbols[k]}`;
      return `${symbol.name} = ${symbols[k]}`;
    });
    const more = given.length > SHOWN ? [`and ${given.length - SHOWN} more`] : [];
    return `the inputs have ${[...given.slice(0, SHOWN), ...more].join(', ')}`;
  }
}

type Definitions = Program['definitions'];

/** The parts that depend on some symbols; shapes by value, and dispatches, by number. */
export interface Parts {
  readonly definitions: Definitions;
  readonly expressions: readonly Postfix[];
  readonly shapes: readonly boolean[];
  readonly dispatches: readonly boolean[];
}

function* expressions(program: Program): Generator<Postfix> {
  for (const it of program.values) yield* [...it.shape, ...it.elements];
  for (const it of program.dispatches) yield* [...it.uniforms, ...it.guards, ...it.workgroups, it.repeats, ...it.ranges.flatMap((range) => range ?? [])];
  for (const it of program.checks) yield it.condition;
}

function bytesBound({ ranges }: Dispatch, of: (it: Postfix) => Int): BindingRange<number>[] {
  if (!ranges.some(Boolean)) return [];
  return ranges.map((range) => range && [Number(of(range[0])), Number(of(range[1]))]);
}

/** Returns a number modulo 2**32. */
function u32(value: Int): number {
  return typeof value === 'number' && Math.abs(value) < 2 ** 31 ? value >>> 0 : Number(BigInt.asUintN(32, BigInt(value)));
}

/** The bytes of each slot of intermediate memory, and the slot of each value. */
export interface Slots {
  readonly slots: readonly number[];
  readonly slotOf: ReadonlyMap<number, number>;
}

/**
 * Returns slots from liveness. A slot is free after the last dispatch that uses its value. Values that no running dispatch
 * uses take no memory.
 */
export function slotsOf(program: Program, { nbytes: sizes, steps }: Layout): Slots {
  const running = [...new Set(steps.map((it) => it.dispatch))]; // in order
  const last = new Map<number, number>();
  for (const k of running) for (const arg of program.dispatches[k]!.args) last.set(arg, k);
  const slots: number[] = [];
  const free: number[] = [];
  const slotOf = new Map<number, number>();
  for (const k of running) {
    const args = new Set(program.dispatches[k]!.args.filter((arg) => program.values[arg]!.storage === 'TEMP'));
    for (const arg of args) if (!slotOf.has(arg)) slotOf.set(arg, bestSlot(slots, free, sizes[arg]!));
    for (const arg of args) if (last.get(arg) === k) free.push(slotOf.get(arg)!);
  }
  return { slots, slotOf };
}

/** Returns the free slot that wastes least. If none is large enough, grows the largest; if none is free, adds one. */
function bestSlot(slots: number[], free: number[], bytes: number): number {
  if (!free.length) return slots.push(bytes) - 1;
  const size = (slot: number): number => slots[slot]!;
  const fitting = free.filter((slot) => size(slot) >= bytes);
  const slot = fitting.length
    ? fitting.reduce((best, it) => (size(it) < size(best) ? it : best))
    : free.reduce((best, it) => (size(it) > size(best) ? it : best));
  free.splice(free.indexOf(slot), 1);
  slots[slot] = Math.max(size(slot), bytes);
  return slot;
}

/** Returns a grid of at least this many workgroups within 65,535 per dimension. Kernels ignore the surplus. */
export function foldGrid(workgroups: number): Grid {
  const rows = Math.ceil(workgroups / MAX_GROUPS);
  return [Math.ceil(workgroups / rows), rows, 1];
}
