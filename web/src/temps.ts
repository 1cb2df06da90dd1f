// Buffers for intermediate values, inputs and outputs, shared by all plans of a session: the queue runs them one after
// another. Invariant: no two tensors of one plan share a buffer.

import type { Gpu } from './device.js';

const CLASSES = 8; // sizes per power of two
const GRAIN = 256;

/** `nbytes` rounded up so that a similar size finds the same memory: eight classes per power of two. */
export function sizeClass(nbytes: number): number {
  const step = Math.max(GRAIN, 2 ** Math.ceil(Math.log2(Math.max(1, nbytes))) / (2 * CLASSES));
  return Math.max(1, Math.ceil(nbytes / step)) * step;
}

export class Temps {
  #buffers: GPUBuffer[] = [];

  constructor(private readonly gpu: Gpu) {}

  /** One buffer per size (bytes), none of them in `used`, to which they are added. Takes those of other plans first. */
  take(sizes: readonly number[], used: Set<GPUBuffer>): GPUBuffer[] {
    const free = this.#buffers.filter((buffer) => !used.has(buffer)).sort((a, b) => a.size - b.size);
    const out: GPUBuffer[] = [];
    const largestFirst = sizes.map((_, k) => k).sort((a, b) => sizes[b]! - sizes[a]!);
    for (const k of largestFirst) {
      const wanted = sizeClass(sizes[k]!);
      const place = free.findIndex((buffer) => buffer.size >= wanted);
      const buffer = place < 0 ? this.#make(wanted) : free.splice(place, 1)[0]!;
      used.add(buffer);
      out[k] = buffer;
    }
    return out;
  }

  #make(size: number): GPUBuffer {
    const buffer = this.gpu.storage(size, 'an intermediate result');
    this.#buffers.push(buffer);
    return buffer;
  }

  /** Frees all buffers but these. */
  keepOnly(used: ReadonlySet<GPUBuffer>): void {
    for (const buffer of this.#buffers) if (!used.has(buffer)) this.gpu.free(buffer);
    this.#buffers = this.#buffers.filter((buffer) => used.has(buffer));
  }
}
