// The columns of the tables in a Program's header that this library reads, as in Python's `program/file.py`. In exports a weight
// also has its offset in the pool and its layout there.

export const COLUMNS = {
  symbols: ['name', 'input', 'index', 'is_element'],
  values: ['name', 'dtype', 'shape', 'storage', 'weight', 'elements'],
  kernels: ['label', 'wgsl', 'bindings', 'uniforms', 'makes_infinity'],
  dispatches: [
    'kernel', 'args', 'uniforms', 'guards', 'workgroups', 'origin', 'operators', 'flops', 'traffic', 'repeats', 'ranges',
  ],
  checks: ['condition', 'text', 'dims', 'limit'],
  weights: ['dtype', 'shape', 'nbytes', 'offset', 'matrices'],
} as const; // prettier-ignore

/** Columns of an export with lists in which `[k]` means expression k. */
export const EXPRESSIONS: readonly string[] = ['shape', 'elements', 'uniforms', 'guards', 'workgroups'];

export type Table = keyof typeof COLUMNS;
/** A row, with its cells by column name. */
export type Row<Name extends Table> = Record<(typeof COLUMNS)[Name][number], any>; // eslint-disable-line @typescript-eslint/no-explicit-any

/** Returns a row of a table by column names. It may lack the last columns. */
export function named<Name extends Table>(table: Name, row: readonly unknown[]): Row<Name> {
  return Object.fromEntries(COLUMNS[table].map((name, k) => [name, row[k]])) as Row<Name>;
}
