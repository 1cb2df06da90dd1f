// The tables of a Program's header as far as this library reads them: what the columns of their rows are, as in Python's
// `program/file.py`. In exports a weight has its place in the pool too, and how it lies there.

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

/** Columns of an export in whose lists `[k]` is expression k. */
export const EXPRESSIONS: readonly string[] = ['shape', 'elements', 'uniforms', 'guards', 'workgroups'];

export type Table = keyof typeof COLUMNS;
/** A row with its cells by the names of their columns. */
export type Row<Name extends Table> = Record<(typeof COLUMNS)[Name][number], any>; // eslint-disable-line @typescript-eslint/no-explicit-any

/** A row of a table, which may end before the last columns do. */
export function named<Name extends Table>(table: Name, row: readonly unknown[]): Row<Name> {
  return Object.fromEntries(COLUMNS[table].map((name, k) => [name, row[k]])) as Row<Name>;
}
