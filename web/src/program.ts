// Reads the compiled form of a graph, as written by Python's `program.py`, from its JSON. In: text. Out: a Program, or a
// ProgramError. `reading` has the checks.

import { COLUMNS, EXPRESSIONS } from './columns.js';
import { nbytes } from './dtypes.js';
import { ProgramError, messageOf } from './errors.js';
import type { MatrixUnit, Program, Target, Value } from './format.js';
import { type Postfix, exact } from './postfix.js';
import { flag, limit, list, matrixUnit, programOf, text } from './reading.js';

export type * from './format.js';

export const FORMAT_VERSION = 10;

// Whole numbers of 16 digits and more are not exact in JSON.parse. Strings are matched first, so that numbers within them are
// skipped.
const WIDE = /"(?:[^"\\]|\\.)*"|-?\d{16,}/g;
const BIGINT = '\u0000';
const MOST_DIGITS = 40; // longer ones take long to parse, and no number of a Program is
const MOST_WGSL = 1 << 26; // characters: a few numbers of an export can stand for texts of any length

/** Parses JSON with exact whole numbers. Those beyond 53 bits are bigints. */
export function parseExact(text: string): unknown {
  if (!/\d{16}/.test(text)) return JSON.parse(text);
  const marked = text.replace(WIDE, (found) => {
    if (found.startsWith('"')) return found;
    if (found.length > MOST_DIGITS) throw new Error(`a number has ${found.length} digits`);
    return `"\\u0000${found}"`;
  });
  return JSON.parse(marked, (_key, value: unknown) =>
    typeof value === 'string' && value.startsWith(BIGINT) ? exact(BigInt(value.slice(1))) : value,
  );
}

/** The limits and features that every exported model may rely on; the same as WEB_BASELINE in Python. */
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
  matrices: [],
};

/** Reads the Program in the JSON of a file. Its weights follow each other from byte `start` on, at multiples of 16. */
export function readProgram(json: string, what: string, start = 0): Program {
  return damaged(what, () => {
    const header = parseExact(json) as Header;
    let end = start;
    const placed = (row: unknown[]): unknown[] => {
      const place = Math.ceil(end / 16) * 16;
      end = place + Number(row[2]);
      return [...row, place];
    };
    return fromHeader({ ...header, weights: (header['weights'] as unknown[][]).map(placed) }, what);
  });
}

/** A file of Programs of an export. `api/web_programs.py` stores repeated parts once. */
interface Shared {
  readonly lines: string;
  readonly texts: readonly (readonly number[])[];
  readonly expressions: readonly Postfix[];
  readonly columns: readonly (readonly unknown[])[];
  readonly programs: readonly Header[];
}

/** Reads Program `number` of a file of an export. It is made for `target`. */
export function readExport(json: string, number: number, target: Target, what: string): Program {
  return damaged(what, () => {
    const { lines, texts, expressions, columns, programs } = parseExact(json) as Shared;
    const all = lines.split('\n');
    const made = new Map<number, string>();
    let left = MOST_WGSL;
    const wgsl = (number: number): string => {
      let found = made.get(number);
      if (found === undefined) {
        let first = 0;
        const parts: string[] = [];
        for (const it of texts[number]!) {
          for (const line of it < 0 ? all.slice(first + 1, first - it) : [all[(first = it)]!]) {
            parts.push(line);
            if ((left -= line.length + 1) < 0) throw new Error('the texts of its kernels are too long');
          }
        }
        made.set(number, (found = parts.join('\n')));
      }
      return found;
    };
    const cell = (it: unknown): unknown => (Array.isArray(it) ? expressions[it[0] as number] : it);
    const named = (number: number): Program => {
      const header: Header = { ...programs[number]!, target };
      for (const name of ['values', 'kernels', 'dispatches', 'weights'] as const) {
        const table = (header[name] as number[]).map((number, k) => {
          const by = COLUMNS[name][k] === 'wgsl' ? wgsl : EXPRESSIONS.includes(COLUMNS[name][k]!) ? cell : undefined;
          return columns[number]!.map((row) => (by && Array.isArray(row) ? row.map(by) : row));
        });
        header[name] = (table[0] ?? []).map((_, row) => table.map((column) => column[row]));
      }
      return { ...fromHeader(header, what), header, named };
    };
    return named(number);
  });
}

/** Calls `make` and reports its errors as damage of the file. */
export function damaged<T>(what: string, make: () => T): T {
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

type Header = Record<string, unknown>;

function fromHeader(header: Header, what: string): Program {
  if (header['format_version'] !== FORMAT_VERSION) throw wrongVersion(what, header['format_version']);
  return programOf(header, targetOf(header['target']));
}

/** Returns the needs of a Program. Raises Error for an invalid form. */
export function targetOf(it: unknown): Target {
  const found = { ...(it as Target) };
  text(found.name);
  list(text)(found.features);
  flag(found.software);
  Object.assign(found, { matrices: list(matrixUnit)(found.matrices ?? []) });
  for (const [name, value] of Object.entries(BASELINE)) {
    if (typeof value === 'number') Object.assign(found, { [name]: limit(found[name as keyof Target]) });
  }
  if (found.offset_alignment === 0) throw new Error('its target has an alignment of 0 bytes');
  return found;
}

/** WebGPU's names of the limits of a Target. */
export const LIMITS = {
  maxStorageBuffersPerShaderStage: 'max_storage_buffers',
  maxComputeInvocationsPerWorkgroup: 'max_invocations',
  maxComputeWorkgroupSizeX: 'max_invocations',
  maxComputeWorkgroupStorageSize: 'max_workgroup_storage',
  maxStorageBufferBindingSize: 'max_binding_bytes',
  maxBufferSize: 'max_buffer_bytes',
} as const;

/**
 * Returns what `needs` relies on and a device with these features, limits and matrix units lacks, in words; undefined if
 * nothing.
 */
export function lack(
  needs: Target,
  features: ReadonlySet<string>,
  limits: GPUSupportedLimits,
  matrices: readonly MatrixUnit[] = [],
): string | undefined {
  const missing = needs.features.filter((it) => !features.has(it));
  if (missing.length) return `needs the features ${missing.join(', ')}, which this adapter lacks`;
  const unit = needs.matrices.find((it) => !matrices.some((other) => `${it}` === `${other}`));
  if (unit) return `needs the matrix unit ${unit}, which this adapter lacks`;
  for (const [name, field] of Object.entries(LIMITS) as [keyof typeof LIMITS, (typeof LIMITS)[keyof typeof LIMITS]][]) {
    const wanted = needs[field];
    if (limits[name] < wanted) return `is made for ${name} ${wanted}, this adapter has ${limits[name]}`;
  }
  if (limits.minStorageBufferOffsetAlignment > needs.offset_alignment) {
    return `is made for minStorageBufferOffsetAlignment ${needs.offset_alignment}, this adapter has ${limits.minStorageBufferOffsetAlignment}`;
  }
  return undefined;
}

/** The bytes of a value of this shape. */
export function valueBytes(value: Value, shape: readonly number[]): number {
  return nbytes(value.dtype, shape.reduce((product, extent) => product * extent, 1));
}
