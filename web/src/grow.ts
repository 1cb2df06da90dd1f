// Handles changing shapes, such as those of a growing sequence: which numbers to calculate again, and which plan has room.
// Pages with one shape do not need it, so it is a separate file, fetched with the second shape. It imports nothing of the
// library.

import type { Gpu } from './device.js';
import type { Layout, Parts } from './layout.js';
import type { Plan } from './plan.js';
import type * as postfix from './postfix.js';
import type { Int, Postfix } from './postfix.js';
import type { Dispatch, Program } from './program.js';

/** By program and the names of symbols. */
const known = new WeakMap<Program, Map<string, Parts>>();

/** Returns the parts that depend on these symbols. */
export function partsOf(program: Program, definitions: Program['definitions'], names: ReadonlySet<string>): Parts {
  const all = known.get(program) ?? new Map<string, Parts>();
  known.set(program, all);
  const key = [...names].join();
  let parts = all.get(key);
  if (!parts) {
    const tokens = new Set([...names].map((it) => `$${it}`));
    const changes = (it: Postfix): boolean => typeof it === 'object' && it.some((token) => tokens.has(token as string));
    const changed = definitions.filter(([name, it]) => changes(it) && tokens.add(`$${name}`));
    const shapes = program.values.map((it) => it.shape.some(changes));
    const numbers = [
      ...program.values.flatMap((it) => [...it.shape, ...it.elements]), ...program.dispatches.flatMap(numbersOf), ...program.checks.map((it) => it.condition),
    ]; // prettier-ignore
    parts = {
      definitions: changed, shapes, expressions: [...new Set(numbers.filter(changes))],
      dispatches: program.dispatches.map((it) => it.args.some((arg) => shapes[arg]) || numbersOf(it).some(changes)),
    };
    all.set(key, parts);
  }
  return parts;
}

function numbersOf(it: Dispatch): Postfix[] {
  return [...it.uniforms, ...it.guards, ...it.workgroups, it.repeats, ...it.ranges.flatMap((range) => range ?? [])];
}

/** Whether a layout runs the same kernels as a plan, in the same order, on the same parts of tensors. */
export function isLike(plan: Plan, { steps }: Layout): boolean {
  const all = plan.layout.steps;
  return steps.length === all.length && steps.every((it, k) => {
    const { dispatch, variant, repeats, ranges } = all[k]!;
    return it === all[k] || (it.dispatch === dispatch && it.variant === variant && it.repeats + repeats === 2 && `${it.ranges}` === `${ranges}`);
  });
}

/** Whether the plan's buffers have room for the tensors of such a layout. */
export function hasRoom({ layout, buffers, owned, most }: Plan, { nbytes }: Layout): boolean {
  return nbytes.every((it, value) => it === layout.nbytes[value] || it <= Math.min(most, (buffers.get(value) ?? owned.get(value))?.size ?? it));
}

// ---- kernels

type Variant = readonly [kernel: number, variant: number];
/** The library's functions that calculate sizes. */
type Calculating = readonly [typeof postfix.mentioned, typeof postfix.needed, typeof postfix.defined, typeof postfix.evaluate];

/** The sizes of a session's runs, and the compilations for later ones. */
interface Sizes {
  symbols: readonly Int[];
  /** Lines of sizes, and the number of elements from which each was scanned last. */
  readonly lines: Map<string, number>;
  /** Variants for the next sizes of a line, nearest first, and those for any sizes. */
  line: Variant[];
  rest: Variant[] | undefined;
  grows: boolean;
  compiling: boolean;
}
const sizes = new WeakMap<object, Sizes>();

/** Steps of a line that are scanned at a time. The next ones are scanned after half of them. */
const FARTHEST = 2 ** 12;
/** Kernels test whether sizes are multiples of this, or of its divisors. */
const MULTIPLE = 8;

/**
 * Receives each new set of sizes of `session` from the second one on.
 *
 * Sizes that grow by one, as in the steps of a text, form a line. The variants for later steps of the line are compiled, and
 * nothing else while they go on. If sizes change in another way, and a run of these is the first to use some kernel (`fresh`),
 * the variants for any sizes are compiled.
 *
 * Compiles one at a time, because a language model has a hundred. Reading their texts at once blocks the thread, and the
 * kernel that a run waits for would be the last in the queue.
 */
export function follow(session: object, program: Program, gpu: Gpu, symbols: readonly Int[], fresh: boolean, by: Calculating, going: () => boolean): void {
  const all = sizes.get(session);
  if (!all) {
    sizes.set(session, { symbols, lines: new Map(), line: [], rest: undefined, grows: false, compiling: false });
    return;
  }
  const steps = symbols.map((it, k) => Number(it) - Number(all.symbols[k]));
  all.symbols = symbols;
  all.grows = steps.every((it) => it === 0 || it === 1);
  if (all.grows) {
    const first = steps.indexOf(1);
    const key = symbols.map((it, k) => (steps[k] ? Number(it) - Number(symbols[first]) : `=${it}`)).join();
    const from = Number(symbols[first]);
    const begun = all.lines.get(key) ?? Infinity;
    if (from < begun || from >= begun + FARTHEST / 2) {
      all.lines.set(key, from);
      all.line = variantsOf(program, symbols, steps.map(Boolean), by);
    }
  } else if (fresh) all.rest ??= usable(program);
  if (!all.compiling) void compile(all, program, gpu, going);
}

async function compile(all: Sizes, program: Program, gpu: Gpu, going: () => boolean): Promise<void> {
  all.compiling = true;
  for (let next; going() && (next = all.line.shift() ?? (all.grows ? undefined : all.rest?.shift())); ) {
    await gpu.pipeline(program.kernels[next[0]]!, next[1]).catch(() => undefined);
  }
  all.compiling = false;
}

/**
 * Returns the variants that some sizes may use: not those after a guard that always holds, nor those with one that never does.
 */
function usable(program: Program): Variant[] {
  return program.dispatches.flatMap(({ kernel, guards }) => {
    const last = guards.findIndex((it) => typeof it !== 'object' && it);
    return guards.flatMap((guard, variant): Variant[] => (guard && (last < 0 || variant <= last) ? [[kernel, variant]] : []));
  });
}

/**
 * Returns the variants that later steps of a line use, nearest first. Guards compare sizes and test for multiples, and so does
 * the number of workgroups of a dispatch that does not run now. So of the steps with equal remainders it scans the first one and
 * doubled distances, and bisects between two that differ.
 */
function variantsOf(
  program: Program, symbols: readonly Int[], growing: readonly boolean[], [mentioned, needed, defined, evaluate]: Calculating,
): Variant[] {
  const names = new Set(program.symbols.flatMap(({ name }, k) => (growing[k] ? name : [])));
  const changes = (it: Postfix): boolean => [...mentioned([it])].some((name) => names.has(name));
  const definitions = needed(mentioned(program.dispatches.flatMap((it) => [...it.guards, ...it.workgroups])), program.definitions);
  const changed = definitions.filter(([name, it]) => changes(it) && names.add(name));
  const known = defined(new Map(program.symbols.map(({ name }, k) => [name, symbols[k]!])), definitions);
  const truth = (it: Postfix): boolean => Boolean(evaluate(it, known));
  /** Dispatches without workgroups now, which later steps may run. */
  const idle = new Set(program.dispatches.filter(({ guards, workgroups }) => !truth(workgroups[guards.findIndex(truth)]!)));
  const conditions = (it: Dispatch): Postfix[] => [...it.guards, ...(idle.has(it) ? it.workgroups : [])];
  const dispatches = program.dispatches.filter((it) => conditions(it).some(changes));
  const tested = [...new Set(dispatches.flatMap(conditions))];
  const constant = tested.map((it) => (changes(it) ? undefined : Number(truth(it))));
  const found = new Map<string, readonly [step: number, Variant]>();
  const seen = new Map<string, number>();
  /** Returns which conditions hold after this many steps. */
  const holding = (step: number): string => {
    program.symbols.forEach(({ name }, k) => growing[k] && known.set(name, Number(symbols[k]) + step));
    for (const [name, it] of changed) known.set(name, evaluate(it, known));
    const held = tested.map((it, k) => constant[k] ?? Number(truth(it))).join('');
    if (!(seen.get(held)! <= step)) seen.set(held, step);
    return held;
  };
  const between = (first: number, atFirst: string, last: number, atLast: string): void => {
    if (atFirst === atLast || last - first <= MULTIPLE) return;
    const middle = first + Math.floor((last - first) / MULTIPLE / 2) * MULTIPLE;
    const there = holding(middle);
    between(first, atFirst, middle, there);
    between(middle, there, last, atLast);
  };
  for (let like = 1; like <= MULTIPLE; like++) {
    let [step, held] = [like, holding(like)];
    for (let far = MULTIPLE; far < FARTHEST; far *= 2) {
      const there = holding(like + far);
      between(step, held, like + far, there);
      [step, held] = [like + far, there];
    }
  }
  const place = new Map(tested.map((it, k) => [it, k]));
  for (const [held, step] of seen) {
    for (const it of dispatches) {
      const holds = (at: Postfix): boolean => held[place.get(at)!] === '1';
      const variant = it.guards.findIndex(holds);
      const key = `${it.kernel},${variant}`;
      if (variant >= 0 && (!idle.has(it) || holds(it.workgroups[variant]!)) && !(found.get(key)?.[0]! <= step)) found.set(key, [step, [it.kernel, variant]]);
    }
  }
  return [...found.values()].sort(([a], [b]) => a - b).map(([, it]) => it);
}
