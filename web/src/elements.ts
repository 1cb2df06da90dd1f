// Integers in memory whose values set shapes.

import { InputError } from './errors.js';
import type { Int } from './postfix.js';

/** Element `index` of integers in memory. */
export function element(bytes: Uint8Array, type: string, index: number): Int {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const read: Record<string, () => number | bigint> = {
    int8: () => view.getInt8(index),
    uint8: () => view.getUint8(index),
    int16: () => view.getInt16(2 * index, true),
    uint16: () => view.getUint16(2 * index, true),
    int32: () => view.getInt32(4 * index, true),
    uint32: () => view.getUint32(4 * index, true),
    int64: () => view.getBigInt64(8 * index, true),
    uint64: () => view.getBigUint64(8 * index, true),
  };
  const value = read[type]?.();
  if (value === undefined) throw new InputError(`an input of type ${type} sets a shape, which takes integers`);
  return typeof value === 'bigint' && BigInt(Number(value)) === value && Number.isSafeInteger(Number(value))
    ? Number(value)
    : value;
}
