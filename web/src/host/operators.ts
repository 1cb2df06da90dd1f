// Operators on float32 tensors in memory, as ONNX defines them. They run the single-node models that libraries in JavaScript
// make for their own pre- and postprocessing. In: a node's attributes and inputs. Out: its outputs. Other attributes are
// refused by name.

import { type Model, readModel } from './model.js';
import { spectrum } from './spectrum.js';

export interface Operand {
  readonly dims: readonly number[];
  readonly data: Float32Array | BigInt64Array;
}
type Inputs = readonly (Operand | undefined)[];
type Attributes = ReadonlyMap<string, number | string>;
export interface Operator {
  /** The attributes that it reads. */
  readonly reads: readonly string[];
  run(inputs: Inputs, attributes: Attributes): Operand[];
}

/**
 * Returns the model and the operator of a node. Throws for an operator that is not implemented here; undefined for other
 * bytes.
 */
export function open(bytes: Uint8Array): { model: Model; operator: Operator } | undefined {
  const model = readModel(bytes);
  if (!model) return undefined;
  const { operator: name, attributes } = model.node;
  const operator = OPERATORS[name];
  if (!operator) throw new RangeError(`the operator ${name}`);
  const unknown = [...attributes.keys()].find((it) => !operator.reads.includes(it));
  if (unknown) throw new RangeError(`the attribute ${unknown} of ${name}`);
  const port = [...model.inputs, ...model.outputs].find((it) => !TYPES[it.type]);
  if (port) throw new RangeError(`the type of '${port.name}'`);
  return { model, operator };
}

/** Types of inputs and outputs, by ONNX's numbers. */
export const TYPES: Readonly<Record<number, 'float32' | 'int64'>> = { 1: 'float32', 7: 'int64' };

const size = (dims: readonly number[]): number => dims.reduce((a, b) => a * b, 1);
const floats = (it: Operand | undefined): Float32Array => it!.data as Float32Array;
const integers = (it: Operand | undefined): number[] | undefined => it && Array.from(it.data as BigInt64Array, Number);

function axisOf(axis: number, rank: number): number {
  const found = axis < 0 ? axis + rank : axis;
  if (!(found >= 0 && found < rank)) throw new RangeError(`axis ${axis} is outside of a tensor of rank ${rank}`);
  return found;
}

/** Splits the dims at an axis: [elements before it, its extent, elements after it]. */
const around = (dims: readonly number[], axis: number): [number, number, number] =>
  [size(dims.slice(0, axis)), dims[axis]!, size(dims.slice(axis + 1))];

const TopK: Operator = {
  reads: ['axis', 'largest', 'sorted'],
  run([x, count], attributes) {
    const { dims } = x!;
    const axis = axisOf(Number(attributes.get('axis') ?? -1), dims.length);
    const sign = attributes.get('largest') === 0 ? 1 : -1;
    const [outer, extent, inner] = around(dims, axis);
    const k = integers(count)![0]!;
    if (!(k >= 0 && k <= extent)) throw new RangeError(`k is ${k}, the axis has ${extent} elements`);
    const shape = dims.with(axis, k);
    const values = new Float32Array(size(shape));
    const places = new BigInt64Array(size(shape));
    const data = floats(x);
    for (let o = 0; o < outer; o++) {
      for (let i = 0; i < inner; i++) {
        const at = (n: number): number => data[(o * extent + n) * inner + i]!;
        // Equal elements stay in order.
        const order = Uint32Array.from({ length: extent }, (_, n) => n).sort((a, b) => sign * (at(a) - at(b)) || a - b);
        for (let n = 0; n < k; n++) {
          values[(o * k + n) * inner + i] = at(order[n]!);
          places[(o * k + n) * inner + i] = BigInt(order[n]!);
        }
      }
    }
    return [{ dims: shape, data: values }, { dims: shape, data: places }];
  },
};

const MatMul: Operator = {
  reads: [],
  run([a, b]) {
    const left = a!.dims.length === 1 ? [1, a!.dims[0]!] : a!.dims;
    const right = b!.dims.length === 1 ? [b!.dims[0]!, 1] : b!.dims;
    const [m, k] = left.slice(-2) as [number, number];
    const [rows, n] = right.slice(-2) as [number, number];
    if (rows !== k) throw new RangeError(`shapes [${a!.dims.join(', ')}] and [${b!.dims.join(', ')}] do not fit`);
    const batch = broadcast(left.slice(0, -2), right.slice(0, -2));
    const data = new Float32Array(size(batch) * m * n);
    const [x, y] = [floats(a), floats(b)];
    for (let t = 0; t < size(batch); t++) {
      const [from, other] = [place(t, batch, left.slice(0, -2)) * m * k, place(t, batch, right.slice(0, -2)) * k * n];
      for (let i = 0; i < m; i++) {
        for (let j = 0; j < n; j++) {
          let sum = 0;
          for (let p = 0; p < k; p++) sum += x[from + i * k + p]! * y[other + p * n + j]!;
          data[(t * m + i) * n + j] = sum;
        }
      }
    }
    return [{ dims: [...batch, ...(a!.dims.length === 1 ? [] : [m]), ...(b!.dims.length === 1 ? [] : [n])], data }];
  },
};

function broadcast(a: readonly number[], b: readonly number[]): number[] {
  const rank = Math.max(a.length, b.length);
  return Array.from({ length: rank }, (_, k) => {
    const [x, y] = [a[k - rank + a.length] ?? 1, b[k - rank + b.length] ?? 1];
    if (x !== y && x !== 1 && y !== 1) throw new RangeError(`shapes [${a.join(', ')}] and [${b.join(', ')}] do not fit`);
    return x === 1 ? y : x;
  });
}

/** Returns the index in a smaller shape that is broadcast to `shape`, for element `index`. */
function place(index: number, shape: readonly number[], smaller: readonly number[]): number {
  let [found, stride] = [0, 1];
  for (let k = 1; k <= shape.length; k++) {
    const extent = smaller.at(-k) ?? 1;
    if (k <= smaller.length && extent > 1) found += (index % shape.at(-k)!) * stride;
    if (k <= smaller.length) stride *= extent;
    index = Math.floor(index / shape.at(-k)!);
  }
  return found;
}

const Slice: Operator = {
  reads: [],
  run([x, starts, ends, axes, steps]) {
    const { dims } = x!;
    const [from, to] = [integers(starts)!, integers(ends)!];
    const along = integers(axes) ?? from.map((_, k) => k);
    const by = integers(steps) ?? from.map(() => 1);
    const first = dims.map(() => 0);
    const step = dims.map(() => 1);
    const shape = [...dims];
    along.forEach((it, k) => {
      const axis = axisOf(it, dims.length);
      const extent = dims[axis]!;
      const stride = by[k]!;
      if (!stride) throw new RangeError('a step is 0');
      const limit = (end: number, low: number, high: number): number => Math.min(high, Math.max(low, end < 0 ? end + extent : end));
      const [start, stop] = stride > 0 ? [limit(from[k]!, 0, extent), limit(to[k]!, 0, extent)] : [limit(from[k]!, 0, extent - 1), limit(to[k]!, -1, extent - 1)];
      [first[axis], step[axis], shape[axis]] = [start, stride, Math.max(0, Math.ceil((stop - start) / stride))];
    });
    const data = new Float32Array(size(shape));
    const values = floats(x);
    for (let n = 0; n < data.length; n++) {
      let [rest, at, stride] = [n, 0, 1];
      for (let k = dims.length - 1; k >= 0; k--) {
        at += (first[k]! + (rest % shape[k]!) * step[k]!) * stride;
        rest = Math.floor(rest / shape[k]!);
        stride *= dims[k]!;
      }
      data[n] = values[at]!;
    }
    return [{ dims: shape, data }];
  },
};

/** For an element along an axis of the result: [element of the input, its weight], to be summed. */
type Taps = readonly (readonly [number, number])[];
type Interpolation = (at: number) => Taps;
const CUBIC = -0.75;
const INTERPOLATIONS: Record<string, Interpolation> = {
  // Halves are rounded down, as round_prefer_floor requires.
  nearest: (at) => [[Math.ceil(at - 0.5), 1]],
  linear: (at) => [[Math.floor(at), 1 - (at - Math.floor(at))], [Math.floor(at) + 1, at - Math.floor(at)]],
  cubic: (at) => {
    const t = at - Math.floor(at);
    const near = (d: number): number => ((CUBIC + 2) * d - (CUBIC + 3)) * d * d + 1;
    const far = (d: number): number => ((CUBIC * d - 5 * CUBIC) * d + 8 * CUBIC) * d - 4 * CUBIC;
    return [far(1 + t), near(t), near(1 - t), far(2 - t)].map((weight, k) => [Math.floor(at) - 1 + k, weight] as const);
  },
};

/** With ONNX's default for coordinates: half_pixel. */
const Resize: Operator = {
  reads: ['mode'],
  run([x, roi, scales, sizes], attributes) {
    if (roi?.data.length || scales?.data.length || !sizes) throw new RangeError('only an input of sizes is supported here');
    const interpolation = INTERPOLATIONS[String(attributes.get('mode') ?? 'nearest')]!;
    let { dims } = x!;
    let data = floats(x);
    integers(sizes)!.forEach((extent, axis) => {
      if (extent === dims[axis]) return;
      const [outer, before, inner] = around(dims, axis);
      const out = new Float32Array(outer * extent * inner);
      for (let n = 0; n < extent; n++) {
        for (const [from, weight] of interpolation(((n + 0.5) * before) / extent - 0.5)) {
          const source = Math.min(before - 1, Math.max(0, from));
          for (let o = 0; o < outer; o++) {
            for (let i = 0; i < inner; i++) out[(o * extent + n) * inner + i]! += weight * data[(o * before + source) * inner + i]!;
          }
        }
      }
      [dims, data] = [dims.with(axis, extent), out];
    });
    return [{ dims, data }];
  },
};

/** From real numbers, (..., 1), or complex ones. The axis is an input. */
const DFT: Operator = {
  reads: ['onesided', 'inverse'],
  run([x, length, axis], attributes) {
    const { dims } = x!;
    if (length || attributes.get('inverse')) throw new RangeError('only a forward transform of a whole axis is supported here');
    const along = axisOf(integers(axis)?.[0] ?? -2, dims.length);
    const [outer, extent, rest] = around(dims, along);
    const parts = dims.at(-1)!;
    const inner = rest / parts;
    const count = attributes.get('onesided') ? Math.floor(extent / 2) + 1 : extent;
    const data = new Float32Array(outer * count * inner * 2);
    const values = floats(x);
    for (let o = 0; o < outer; o++) {
      for (let i = 0; i < inner; i++) {
        const at = (n: number, part: number): number => (part < parts ? values[((o * extent + n) * inner + i) * parts + part]! : 0);
        const [real, imaginary] = spectrum(extent, (n) => at(n, 0), (n) => at(n, 1));
        for (let n = 0; n < count; n++) data.set([real[n]!, imaginary[n]!], ((o * count + n) * inner + i) * 2);
      }
    }
    return [{ dims: [...dims.slice(0, along), count, ...dims.slice(along + 1, -1), 2], data }];
  },
};

const STFT: Operator = {
  reads: ['onesided'],
  run([signal, hop, window, length], attributes) {
    const [batch, samples] = signal!.dims as [number, number];
    const step = integers(hop)![0]!;
    const extent = integers(length)?.[0] ?? window!.dims[0]!;
    const frames = Math.floor((samples - extent) / step) + 1;
    if (!(step > 0 && frames > 0)) throw new RangeError(`frames of ${extent} every ${step} do not fit ${samples} samples`);
    const count = (attributes.get('onesided') ?? 1) ? Math.floor(extent / 2) + 1 : extent;
    const data = new Float32Array(batch * frames * count * 2);
    const [values, weights] = [floats(signal), window && floats(window)];
    for (let row = 0; row < batch * frames; row++) {
      const first = Math.floor(row / frames) * samples + (row % frames) * step;
      const [real, imaginary] = spectrum(extent, (n) => values[first + n]! * (weights?.[n] ?? 1));
      for (let n = 0; n < count; n++) data.set([real[n]!, imaginary[n]!], (row * count + n) * 2);
    }
    return [{ dims: [batch, frames, count, 2], data }];
  },
};

const OPERATORS: Readonly<Record<string, Operator>> = { TopK, MatMul, Slice, Resize, DFT, STFT };
