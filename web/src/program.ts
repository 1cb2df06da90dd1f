// The compiled form of a graph, as Python's `program.py` writes it, read from its JSON. In: text. Out: a Program, or a
// ProgramError. Invariant: every number in a Program that indexes something else is in range.

import { COLUMNS, EXPRESSIONS, type Row, type Table, named } from './columns.js';
import { type DType, dtype, nbytes } from './dtypes.js';
import { ProgramError, messageOf } from './errors.js';
import { type Postfix, exact } from './postfix.js';

export const FORMAT_VERSION = 8;
/** The symbol that counts the runs of a repeated dispatch. */
export const REPETITION = '@repetition';

/** Who owns the memory of a value: the caller (read, written), the session (weights), a plan. */
export type Storage = 'INPUT' | 'OUTPUT' | 'WEIGHT' | 'TEMP' | 'HOST';

export interface Target {
  readonly name: string;
  readonly features: readonly string[];
  readonly max_storage_buffers: number;
  readonly max_invocations: number;
  readonly max_workgroup_storage: number;
  readonly max_binding_bytes: number;
  readonly max_buffer_bytes: number;
  readonly offset_alignment: number;
  /** Made for an adapter that calculates on the CPU. It runs everywhere, slower than others on a GPU. */
  readonly software: boolean;
}

/** A tensor. `weight` indexes the weights; `elements` are the numbers that a HOST value holds, row-major. */
export interface Value {
  readonly name: string;
  readonly dtype: DType;
  readonly shape: readonly Postfix[];
  readonly storage: Storage;
  readonly weight: number;
  readonly elements: readonly Postfix[];
}

/** WGSL texts, one per variant, with the same bindings; a block of `uniforms` u32 follows them when it is not 0. */
export interface Kernel {
  readonly label: string;
  readonly wgsl: readonly string[];
  readonly bindings: readonly ('read' | 'read_write')[];
  readonly uniforms: number;
}

/** The first byte and the number of bytes that are bound of a tensor; null for all of it. */
export type BindingRange<Number> = readonly [Number, Number] | null;

/**
 * One use of a kernel: the first variant whose guard is not 0 runs, `repeats` times, with REPETITION counted from 0.
 * `ranges` has an entry for each of `args`, or none at all where all are bound whole.
 */
export interface Dispatch {
  readonly kernel: number;
  readonly args: readonly number[];
  readonly uniforms: readonly Postfix[];
  readonly guards: readonly Postfix[];
  readonly workgroups: readonly Postfix[];
  readonly origin: readonly string[];
  readonly operators: readonly string[];
  readonly repeats: Postfix;
  readonly ranges: readonly BindingRange<Postfix>[];
}

/** The extent of an input's axis, or with `isElement` an element of a small integer input. */
export interface Symbol {
  readonly name: string;
  readonly input: number;
  readonly index: number;
  readonly isElement: boolean;
}

/** `condition` must not be 0; else `text` says what is wrong, with a place `{}` for each of `dims`. */
export interface Check {
  readonly condition: Postfix;
  readonly text: string;
  readonly dims: readonly Postfix[];
  readonly limit: boolean;
}

/** A weight: bytes from `offset` on of what follows the Program, or of the chunks beside it. */
export interface Weight {
  readonly name: string;
  readonly offset: number;
  readonly bytes: number;
}

export type Definition = readonly [string, Postfix];

export interface Program {
  readonly name: string;
  readonly target: Target;
  readonly symbols: readonly Symbol[];
  readonly definitions: readonly Definition[];
  readonly said: readonly Definition[];
  readonly inputs: readonly number[];
  readonly outputs: readonly number[];
  readonly values: readonly Value[];
  readonly kernels: readonly Kernel[];
  readonly dispatches: readonly Dispatch[];
  readonly checks: readonly Check[];
  /** An output that begins as an input, where both have one shape; by value number. */
  readonly aliases: readonly (readonly [output: number, input: number])[];
  readonly weights: readonly Weight[];
}

// Whole numbers of 16 digits and more are not exact as numbers of JSON; text is matched first, so that none inside it is.
const WIDE = /"(?:[^"\\]|\\.)*"|-?\d{16,}/g;
const BIGINT = '\u0000';

/** JSON with exact whole numbers: those beyond 53 bits are bigints. */
export function parseExact(text: string): unknown {
  if (!/\d{16}/.test(text)) return JSON.parse(text);
  const marked = text.replace(WIDE, (found) => (found.startsWith('"') ? found : `"\\u0000${found}"`));
  return JSON.parse(marked, (_key, value: unknown) =>
    typeof value === 'string' && value.startsWith(BIGINT) ? exact(BigInt(value.slice(1))) : value,
  );
}

/** What every exported model may rely on; the same as WEB_BASELINE in Python. */
export const BASELINE: Target = {
  name: 'web-baseline',
  features: [],
  max_storage_buffers: 8,
  max_invocations: 256,
  max_workgroup_storage: 16384,
  max_binding_bytes: 128 << 20,
  max_buffer_bytes: 256 << 20,
  offset_alignment: 256,
  software: false,
};

const aligned = (offset: number): number => Math.ceil(offset / 16) * 16;

/** The Program in the JSON of a file, whose weights follow each other from byte `start` on, at multiples of 16. */
export function readProgram(text: string, what: string, start = 0): Program {
  return read(what, () => fromHeader(parseExact(text) as Header, what, start));
}

/** A file of Programs of an export, in which `api/web_programs.py` says what repeats once. */
interface Shared {
  readonly lines: string;
  readonly texts: readonly (readonly number[])[];
  readonly expressions: readonly Postfix[];
  readonly columns: readonly (readonly unknown[])[];
  readonly programs: readonly Header[];
}

/** Program `number` of those in a file of an export, which is made for `target`. */
export function readExport(json: string, number: number, target: Target, what: string): Program {
  return read(what, () => {
    const { lines, texts, expressions, columns, programs } = parseExact(json) as Shared;
    const all = lines.split('\n');
    const wgsl = (text: number): string => {
      let first = 0;
      const ranges = texts[text]!.map((it) => (it < 0 ? all.slice(first + 1, first - it) : [all[(first = it)]!]));
      return ranges.flat().join('\n');
    };
    const header: Header = { ...programs[number]!, target };
    const cell = (it: any): unknown => (Array.isArray(it) ? expressions[it[0]] : it); // eslint-disable-line @typescript-eslint/no-explicit-any
    for (const name of ['values', 'kernels', 'dispatches', 'weights'] as const) {
      const table = (header[name] as number[]).map((number, k) => {
        const by = COLUMNS[name][k] === 'wgsl' ? wgsl : EXPRESSIONS.includes(COLUMNS[name][k]!) ? cell : undefined;
        return columns[number]!.map((row) => (by && Array.isArray(row) ? row.map(by) : row));
      });
      header[name] = (table[0] ?? []).map((_, row) => table.map((column) => column[row]));
    }
    return fromHeader(header, what, 0);
  });
}

function read(what: string, make: () => Program): Program {
  try {
    return make();
  } catch (error) {
    if (error instanceof ProgramError) throw error;
    throw new ProgramError(`${what} is damaged: ${messageOf(error)}`, { cause: error });
  }
}

export function wrongVersion(what: string, found: unknown, reads = FORMAT_VERSION): ProgramError {
  return new ProgramError(
    `${what} has format version ${String(found)}, this library reads ${reads}: export the model again with the wgpu-ep of this version`,
  );
}

type Header = Record<string, any>; // eslint-disable-line @typescript-eslint/no-explicit-any

function fromHeader(header: Header, what: string, start: number): Program {
  if (header['format_version'] !== FORMAT_VERSION) throw wrongVersion(what, header['format_version']);
  const rows = <Name extends Table>(table: Name): Row<Name>[] =>
    (header[table] as unknown[][]).map((row) => named(table, row));
  const values: Value[] = rows('values').map((it) => ({ ...it, dtype: dtype(it.dtype) }));
  const names = new Map(values.filter((it) => it.weight >= 0).map((it) => [it.weight, it.name]));
  let end = start;
  const program: Program = {
    name: header['name'],
    target: header['target'],
    symbols: rows('symbols').map(({ is_element: isElement, ...it }) => ({ ...it, isElement })),
    definitions: header['definitions'],
    said: header['said'],
    aliases: header['aliases'],
    inputs: header['inputs'],
    outputs: header['outputs'],
    values,
    kernels: rows('kernels'),
    dispatches: rows('dispatches'),
    checks: rows('checks'),
    weights: rows('weights').map(({ nbytes: bytes, offset }, k) => {
      const from: number = offset ?? aligned(end);
      end = from + bytes;
      return { name: names.get(k) ?? '', offset: from, bytes };
    }),
  };
  return checked(program, what);
}

function checked(program: Program, what: string): Program {
  const { values, kernels, weights } = program;
  const wrong = (problem: string): ProgramError => new ProgramError(`${what} is damaged: ${problem}`);
  const value = (index: number): void => {
    if (!values[index]) throw wrong(`there is no value ${index}`);
  };
  program.inputs.forEach(value);
  program.outputs.forEach(value);
  for (const it of program.symbols) if (program.inputs[it.input] === undefined) throw wrong(`no input ${it.input}`);
  for (const it of values) if (it.storage === 'WEIGHT' && !weights[it.weight]) throw wrong(`no weight ${it.weight}`);
  for (const it of program.dispatches) {
    const kernel = kernels[it.kernel];
    if (!kernel) throw wrong(`there is no kernel ${it.kernel}`);
    it.args.forEach(value);
    const count = kernel.wgsl.length;
    const ranges = it.ranges.length || it.args.length;
    if (it.args.length !== kernel.bindings.length || ranges !== it.args.length) throw wrong(`the bindings of '${kernel.label}'`);
    if (it.guards.length !== count || it.workgroups.length !== count) {
      throw wrong(`a dispatch does not fit its kernel '${kernel.label}'`);
    }
  }
  for (const it of weights) if (!(it.bytes >= 0 && it.offset >= 0)) throw wrong(`the weight '${it.name}' has no place`);
  return program;
}

/** What `needs` relies on and a device with these features and limits lacks, in words; undefined when it has it all. */
export function lack(needs: Target, features: ReadonlySet<string>, limits: GPUSupportedLimits): string | undefined {
  const missing = needs.features.filter((it) => !features.has(it));
  if (missing.length) return `needs the features ${missing.join(', ')}, which this adapter lacks`;
  const rules = [
    ['maxStorageBuffersPerShaderStage', needs.max_storage_buffers],
    ['maxComputeInvocationsPerWorkgroup', needs.max_invocations],
    ['maxComputeWorkgroupStorageSize', needs.max_workgroup_storage],
    ['maxStorageBufferBindingSize', needs.max_binding_bytes],
    ['maxBufferSize', needs.max_buffer_bytes],
  ] as const;
  for (const [name, wanted] of rules) {
    if (limits[name] < wanted) return `is made for ${name} ${wanted}, this adapter has ${limits[name]}`;
  }
  if (limits.minStorageBufferOffsetAlignment > needs.offset_alignment) {
    return `is made for minStorageBufferOffsetAlignment ${needs.offset_alignment}, this adapter has ${limits.minStorageBufferOffsetAlignment}`;
  }
  return undefined;
}

/** Bytes of a value of this shape. */
export function valueBytes(value: Value, shape: readonly number[]): number {
  return nbytes(value.dtype, shape.reduce((product, extent) => product * extent, 1));
}
