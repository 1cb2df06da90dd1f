// A Flow as Python's `program/flow.py` has it: Programs, and the parts that run them one after another. In: a Program of an export
// whose header has parts. Out: a Flow of which all was looked at, or an Error. Invariant: what a part reads is made before it, and a
// body takes and gives as many values as its part has.

import type { Program } from '../program.js';

export type Kind = 'run' | 'same' | 'if' | 'loop';

/** How many programs a part of each kind has. */
const KINDS: Readonly<Record<string, number>> = { run: 1, same: 0, if: 2, loop: 1 };
/** The number of an argument that is not given. */
export const NONE = -1;

/** A step of a Flow; `args` and `results` are values. Of a loop they begin with the number of rounds, a condition, and `states`. */
export interface Part {
  readonly kind: Kind;
  readonly programs: readonly Flow[];
  readonly args: readonly number[];
  readonly results: readonly number[];
  readonly states: number;
  /** Values that nobody reads behind it. */
  readonly last: readonly number[];
}

/** A Program, with its parts where it is made of others. */
export interface Flow {
  readonly program: Program;
  readonly parts?: readonly Part[];
  /** Results whose size data decides, each with its shape, by place among the outputs; those shapes are behind the results. */
  readonly sized: readonly (readonly [result: number, shape: number])[];
  /** A host calculates all of it. */
  readonly onHost: boolean;
}

/** Reads a program and those within it, each once. Raises Error. */
export function flowOf(program: Program): Flow {
  const known = new Map<number, Flow | undefined>();
  const within = (number: number): Flow => {
    if (known.has(number)) {
      const found = known.get(number);
      if (!found) throw new Error('a flow is within itself');
      return found;
    }
    known.set(number, undefined);
    const found = read(program.named!(number), within);
    known.set(number, found);
    return found;
  };
  return read(program, within);
}

function read(program: Program, within: (number: number) => Flow): Flow {
  const { outputs, dispatches, values, header } = program;
  const sized = list(header!['sized'] ?? []).map((it) => {
    const [result, shape] = list(it).map((value) => outputs.indexOf(value as number));
    if (!(result! >= 0 && shape! >= 0)) throw new Error(`${String(it)} are no outputs`);
    return [result!, shape!] as const;
  });
  const rows = header!['parts'];
  if (!rows) return { program, sized, onHost: !dispatches.length && outputs.every((it) => values[it]!.storage === 'HOST') };
  const programs = list(header!['programs']);
  const last = new Map<number, number>();
  const made = new Set(program.inputs);
  const parts = list(rows).map((row, place): Part => {
    const [kind, numbers, args, results, states] = list(row) as [Kind, number[], number[], number[], number];
    if (KINDS[kind] !== list(numbers).length) throw new Error(`${String(row)} is no part`);
    for (const it of list(args) as number[]) {
      if (it === NONE && kind === 'loop') continue;
      if (!made.has(it)) throw new Error(`value ${it} is read before it is made`);
      last.set(it, place);
    }
    for (const it of list(results) as number[]) {
      if (!values[it] || made.has(it)) throw new Error(`value ${it} is made twice`);
      made.add(it);
      if (!last.has(it)) last.set(it, place);
    }
    const part = { kind, programs: numbers.map((it) => within(programs[it] as number)), args, results, states, last: [] };
    if (!fits(part)) throw new Error(`a part '${kind}' of '${program.name}' does not fit its programs`);
    return part;
  });
  if (!outputs.every((it) => made.has(it))) throw new Error(`an output of '${program.name}' is not made`);
  const kept = new Set(outputs);
  for (const it of program.inputs) if (!last.has(it)) last.set(it, NONE);
  return {
    program, sized, onHost: false,
    parts: parts.map((part, place) => ({ ...part, last: [...last].flatMap(([it, at]) => (at === place && !kept.has(it) ? it : [])) })),
  };
}

function fits({ kind, programs, args, results, states }: Part): boolean {
  const takes = kind === 'if' ? args.length - 1 : args.length;
  const gives = results.length + Number(kind === 'loop');
  const looped = kind !== 'loop' || (args.length > 1 && states >= 0 && states <= Math.min(args.length - 2, results.length));
  if (kind === 'same') return args.length === 1 && gives === 1;
  return looped && programs.every((it) => it.program.inputs.length === takes && it.program.outputs.length - it.sized.length === gives);
}

function list(it: unknown): readonly unknown[] {
  if (!Array.isArray(it)) throw new Error(`${String(it).slice(0, 80)} is no list`);
  return it;
}
