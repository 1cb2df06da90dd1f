// Element types: their bits in a buffer, and the tensor types of onnxruntime-common for them. Buffers have ONNX Runtime's
// layout: a bool is a byte, and elements of 4 bits share bytes, the first in the low half.

import type { Tensor } from 'onnxruntime-common';
import { ProgramError } from './errors.js';

export interface DType {
  /** As in Python, in lower case: `float32`. */
  readonly name: string;
  readonly bits: number;
  /** The tensor type of onnxruntime-common. An integer type carries the bits of a type that it lacks. Undefined if none can. */
  readonly tensor: Tensor.Type | undefined;
}

const BITS = new Map(Object.entries({
  float32: 32, uint8: 8, int8: 8, uint16: 16, int16: 16, int32: 32, int64: 64, bool: 8, float16: 16, float64: 64,
  uint32: 32, uint64: 64, bfloat16: 16, float8e4m3fn: 8, float8e4m3fnuz: 8, float8e5m2: 8, float8e5m2fnuz: 8, uint4: 4,
  int4: 4, float4e2m1: 4, uint2: 2, int2: 2, string: 0,
})); // prettier-ignore
/**
 * Tensor types for element types that onnxruntime-common lacks: one of the same size. Packed types have none, except int4 and
 * uint4.
 */
const CARRIERS: readonly (readonly [RegExp, Tensor.Type | undefined])[] = [
  [/^bfloat16/, 'uint16'], [/^float8/, 'uint8'], [/^(float4|u?int2)/, undefined],
]; // prettier-ignore
/** Types for which onnxruntime-common has tensors in GPU buffers. */
const ON_GPU = /^(float32|float16|u?int32|int64|uint8|bool|u?int4)$/;

/** Returns the type with a name of a Program, such as `FLOAT32`. Raises ProgramError. */
export function dtype(name: string): DType {
  const label = name.toLowerCase();
  const bits = BITS.get(label);
  if (bits === undefined) throw new ProgramError(`the program has the unknown element type '${name}': export it again`);
  const carrier = CARRIERS.find(([types]) => types.test(label));
  return { name: label, bits, tensor: carrier ? carrier[1] : (label as Tensor.Type) };
}

/** Whether a tensor of this type can be in a GPU buffer. */
export function fitsGpu({ tensor }: DType): boolean {
  return ON_GPU.test(tensor ?? '');
}

/** The bytes of a tensor of `count` elements. */
export function nbytes(type: DType, count: number): number {
  return Math.ceil((count * type.bits) / 8);
}

type ArrayType = new (buffer: ArrayBuffer, offset?: number, length?: number) => ArrayBufferView;

/**
 * Returns the typed array over `bytes` for a tensor of this type. For float16 it is a Uint16Array if there is no Float16Array.
 */
export function typedArray(type: DType, bytes: ArrayBuffer): ArrayBufferView {
  const half = (globalThis as { Float16Array?: ArrayType }).Float16Array ?? Uint16Array;
  const arrays: Record<string, ArrayType> = {
    float32: Float32Array, float64: Float64Array, float16: half, int8: Int8Array, int16: Int16Array, uint16: Uint16Array,
    int32: Int32Array, uint32: Uint32Array, int64: BigInt64Array, uint64: BigUint64Array,
  }; // prettier-ignore
  return new (arrays[type.tensor ?? ''] ?? Uint8Array)(bytes);
}

/** Returns integers as the bytes of a tensor of `type`, wrapped around as in C. */
export function integerBytes(type: DType, elements: readonly (number | bigint)[]): Uint8Array<ArrayBuffer> {
  const size = type.bits / 8;
  const bytes = new Uint8Array(elements.length * size);
  const view = new DataView(bytes.buffer);
  elements.forEach((element, k) => {
    if (type.name === 'float32') view.setFloat32(k * size, Number(element), true);
    else if (size === 8) view.setBigInt64(k * size, BigInt.asIntN(64, BigInt(element)), true);
    else {
      const low = Number(BigInt.asUintN(32, BigInt(element)));
      for (let byte = 0; byte < size; byte++) bytes[k * size + byte] = low >>> (8 * byte);
    }
  });
  return bytes;
}
