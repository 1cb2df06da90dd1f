// A Flow as in Python's `program/flow.py`: Programs, and the parts that run them one after another. In: a Program of an export
// with parts in its header. Out: a Flow that was checked completely, or an Error. Invariants: a part reads values that earlier
// parts made. The types of a body's inputs and outputs match its part.

import type { Program, Value } from '../program.js';

export type Kind = 'run' | 'same' | 'if' | 'loop';

/** The number of programs in a part of each kind. */
const KINDS: Readonly<Record<string, number>> = { run: 1, same: 0, if: 2, loop: 1 };
/** The number of an omitted argument. */
export const NONE = -1;

/**
 * A step of a Flow. `args` and `results` are values. The arguments of a loop begin with the trip count, a condition, and
 * `states`.
 */
export interface Part {
  readonly kind: Kind;
  readonly programs: readonly Flow[];
  readonly args: readonly number[];
  readonly results: readonly number[];
  readonly states: number;
  /** Values that no later part reads. */
  readonly last: readonly number[];
}

/** A Program, with its parts if it consists of others. */
export interface Flow {
  readonly program: Program;
  readonly parts?: readonly Part[];
  /** Results with a size that data decides, each with its shape, by index of the outputs. These shapes follow the results. */
  readonly sized: readonly (readonly [result: number, shape: number])[];
  /** Whether a host calculates all of it. */
  readonly onHost: boolean;
}

/** Reads a program and the nested ones, each once. Raises Error. */
export function flowOf(program: Program): Flow {
  const known = new Map<number, Flow | undefined>();
  const within = (number: number): Flow => {
    if (known.has(number)) {
      const found = known.get(number);
      if (!found) throw new Error('a flow contains itself');
      return found;
    }
    known.set(number, undefined);
    const found = read(program.named!(number), within);
    known.set(number, found);
    return found;
  };
  return read(program, within);
}

/** Returns the programs without parts, each once. Flows of one file may share others. */
export function leaves(flow: Flow, met = new Set<Flow>(), found = new Set<Program>()): Set<Program> {
  const { program, parts } = flow;
  if (met.has(flow)) return found;
  met.add(flow);
  if (!parts) return found.add(program);
  for (const part of parts) for (const it of part.programs) leaves(it, met, found);
  return found;
}

function read(program: Program, within: (number: number) => Flow): Flow {
  const { outputs, dispatches, values, header } = program;
  const sized = list(header!['sized'] ?? []).map((it) => {
    const [result, shape] = list(it).map((value) => outputs.indexOf(value as number));
    const [most, extents] = [values[outputs[result!]!], values[outputs[shape!]!]];
    if (most?.shape.length !== 1 || extents?.shape.length !== 1 || !isType(extents, 'int64') || most === extents) {
      throw new Error(`${String(it)} are not a list and its shape`);
    }
    return [result!, shape!] as const;
  });
  const rows = header!['parts'];
  if (!rows) return { program, sized, onHost: !dispatches.length && outputs.every((it) => values[it]!.storage === 'HOST') };
  const programs = list(header!['programs']);
  const last = new Map<number, number>();
  const made = new Set(program.inputs);
  const parts = list(rows).map((row, place): Part => {
    const [kind, numbers, args, results, states] = list(row) as [Kind, number[], number[], number[], number];
    if (KINDS[kind] !== list(numbers).length) throw new Error(`${String(row)} is not a part`);
    for (const [k, it] of (list(args) as number[]).entries()) {
      if (it === NONE && kind === 'loop' && k < 2) continue;
      if (!made.has(it)) throw new Error(`value ${it} is read before it is written`);
      last.set(it, place);
    }
    for (const it of list(results) as number[]) {
      if (!Number.isInteger(it) || !values[it] || made.has(it)) throw new Error(`value ${it} is written twice`);
      made.add(it);
      if (!last.has(it)) last.set(it, place);
    }
    const part = { kind, programs: numbers.map((it) => within(programs[it] as number)), args, results, states, last: [] };
    if (!fits(part, values)) throw new Error(`a part '${kind}' of '${program.name}' does not fit its programs`);
    return part;
  });
  if (!outputs.every((it) => made.has(it))) throw new Error(`an output of '${program.name}' is not written`);
  const kept = new Set(outputs);
  for (const it of program.inputs) if (!last.has(it)) last.set(it, NONE);
  return {
    program, sized, onHost: false,
    parts: parts.map((part, place) => ({ ...part, last: [...last].flatMap(([it, at]) => (at === place && !kept.has(it) ? it : [])) })),
  };
}

function fits({ kind, programs, args, results, states }: Part, values: readonly Value[]): boolean {
  const types = (numbers: readonly number[], of = values): unknown[] => numbers.map((it) => of[it]?.dtype.name);
  const given = types(args);
  const made = types(results);
  const alike = ({ program: { inputs, outputs, values: own }, sized }: Flow, takes: unknown[], gives: unknown[]): boolean => (
    `${types(inputs, own)}` === `${takes}` && `${types(outputs.slice(0, outputs.length - sized.length), own)}` === `${gives}`
  ); // prettier-ignore
  if (kind === 'same') return given.length === 1 && `${given}` === `${made}`;
  if (kind === 'if') return given[0] === 'bool' && programs.every((it) => alike(it, given.slice(1), made));
  if (kind === 'run') return alike(programs[0]!, given, made);
  const decides = ['int64', 'bool'].every((it, k) => args[k] === NONE || given[k] === it);
  return decides && Number.isInteger(states) && states >= 0 && states <= Math.min(args.length - 2, results.length)
    && alike(programs[0]!, ['int64', 'bool', ...given.slice(2)], ['bool', ...made]);
}

function isType(value: Value | undefined, type: string): boolean {
  return value?.dtype.name === type;
}

function list(it: unknown): readonly unknown[] {
  if (!Array.isArray(it)) throw new Error(`${String(it).slice(0, 80)} is not an array`);
  return it;
}
