// Stacks the values of a loop's rounds along a new first axis. In: a value of each round. Out: one value. Invariants: all have
// one shape. Their sizes are whole words, because WebGPU copies whole words.

import { nbytes } from '../dtypes.js';
import type { Value } from '../program.js';
import type { Item, Values } from './values.js';

/** Rounds with initial room, if more may follow. */
const FIRST = 16;
/** Bytes up to which there is room for all possible rounds, and the most for initial room. */
const AT_ONCE = 1 << 24;

export class Stacked {
  #rounds = 0;
  #room = 0;
  #bytes = 0;
  #dims: readonly number[] | undefined;
  #buffer: GPUBuffer | undefined;

  /** `most` is the largest number of rounds. */
  constructor(private readonly values: Values, private readonly value: Value, private readonly most: number) {}

  add(item: Item): void {
    const { values, value } = this;
    const { gpu } = values;
    this.#dims ??= item.dims;
    if (this.#dims.join() !== item.dims.join()) {
      throw values.wrong(
        `the rounds of a loop give '${value.name}' the shapes [${this.#dims.join(', ')}] and [${item.dims.join(', ')}], and side by side they need one`,
      );
    }
    this.#bytes = nbytes(value.dtype, item.dims.reduce((a, b) => a * b, 1));
    if (this.#rounds === this.#room && this.#bytes) this.#grow();
    const at = this.#rounds * this.#bytes;
    this.#rounds += 1;
    if (!this.#bytes) return;
    if (item.bytes) gpu.write(this.#buffer!, at, item.bytes);
    else copy(values, item.buffer!, 0, this.#buffer!, at, this.#bytes);
  }

  #grow(): void {
    const first = this.most * this.#bytes <= AT_ONCE ? this.most : Math.min(FIRST, Math.floor(AT_ONCE / this.#bytes));
    const held = Math.floor(this.values.gpu.limits.maxBufferSize / this.#bytes);
    this.#room = Math.max(this.#rounds + 1, Math.min(this.most, held, Math.max(first, 2 * this.#room)));
    const before = this.#buffer;
    this.#buffer = this.values.take(this.#room * this.#bytes, `what a loop makes of '${this.value.name}'`);
    if (!before) return;
    copy(this.values, before, 0, this.#buffer, 0, this.#rounds * this.#bytes);
    this.values.leave({ dims: [], buffer: before, holders: 1 });
  }

  /** Returns all rounds as one value. Without any, extents that the model does not state are 0, as in ONNX Runtime. */
  item(): Item {
    const dims = this.#dims ?? this.value.shape.map((it) => (typeof it === 'object' ? 0 : Math.max(0, Number(it))));
    const buffer = this.#buffer ?? this.values.take(0, `what a loop makes of '${this.value.name}'`);
    return { dims: [this.#rounds, ...dims], buffer, holders: 1 };
  }
}

/** Copies whole words. */
export function copy({ gpu }: Values, from: GPUBuffer, start: number, to: GPUBuffer, at: number, bytes: number): void {
  const encoder = gpu.device.createCommandEncoder();
  encoder.copyBufferToBuffer(from, start, to, at, Math.ceil(bytes / 4) * 4);
  gpu.queue.submit([encoder.finish()]);
}
