// What changes where shapes change, as of a sequence that grows: which numbers to calculate again, and which plan has room. Pages with
// one shape need none of it, so it lies in a file that is fetched with the second shape; it imports nothing that the library has, too.

import type { Gpu } from './device.js';
import type { Layout, Parts } from './layout.js';
import type { Plan } from './plan.js';
import type { Postfix } from './postfix.js';
import type { Dispatch, Program } from './program.js';

/** By program and the names of symbols. */
const known = new WeakMap<Program, Map<string, Parts>>();

/** What changes with these symbols. */
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

/** Whether a layout runs what a plan does: the same kernels in the same order, on the same parts of tensors. */
export function isLike(plan: Plan, { steps }: Layout): boolean {
  const all = plan.layout.steps;
  return steps.length === all.length && steps.every((it, k) => {
    const { dispatch, variant, repeats, ranges } = all[k]!;
    return it === all[k] || (it.dispatch === dispatch && it.variant === variant && it.repeats + repeats === 2 && `${it.ranges}` === `${ranges}`);
  });
}

/** Whether the tensors of such a layout have room. */
export function hasRoom({ layout, buffers, owned, most }: Plan, { nbytes }: Layout): boolean {
  return nbytes.every((it, value) => it === layout.nbytes[value] || it <= Math.min(most, (buffers.get(value) ?? owned.get(value))?.size ?? it));
}

/**
 * Compiles all that some shape may take, while `going`: what stands behind a guard that always holds, or never, is not. One after
 * another, because a language model has a hundred: reading their texts at once keeps the thread, and what a run waits for would be
 * the last in the queue.
 */
export async function compileUsable(program: Program, gpu: Gpu, going: () => boolean): Promise<void> {
  for (const { kernel, guards } of program.dispatches) {
    const last = guards.findIndex((it) => typeof it !== 'object' && it);
    for (const [variant, guard] of guards.entries()) {
      if (!going()) return;
      if (guard && (last < 0 || variant <= last)) await gpu.pipeline(program.kernels[kernel]!, variant).catch(() => undefined);
    }
  }
}

