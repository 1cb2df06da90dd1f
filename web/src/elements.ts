// Elements of inputs in memory with values that set shapes.

import { InputError } from './errors.js';
import { type Int, exact } from './postfix.js';
import type { Value } from './program.js';

/** Returns element `index` of an input: an integer, or the bits of a float. Raises InputError if there are fewer elements. */
export function element(bytes: Uint8Array, { name: what, dtype: { name, bits } }: Value, index: number): Int {
  const size = bits / 8;
  if (bytes.length < (index + 1) * size) {
    throw new InputError(`input '${what}' has ${bytes.length / size} elements, the model takes at least ${index + 1}`);
  }
  const view = new DataView(bytes.buffer, bytes.byteOffset);
  const get = `get${bits > 32 ? 'Big' : ''}${name[0] === 'i' ? 'Int' : 'Uint'}${bits}`;
  const value = view[get as 'getInt32' | 'getBigInt64'](index * size, true);
  return typeof value === 'bigint' ? exact(value) : value;
}
