// Buffers for intermediate values, inputs and outputs, shared by all plans of a session, because the queue runs the plans one
// after another. Invariants: no two tensors of one plan share a buffer. A buffer lives as long as a plan uses it.

import type { Gpu } from './device.js';

const CLASSES = 8; // sizes per power of two
const GRAIN = 256;
/** The least spare bytes for tensors that grow. */
export const ROOM = 1 << 16;

/**
 * Rounds `nbytes` up so that similar sizes share memory: eight classes per power of two, half as many for tensors that `grow`.
 */
export function sizeClass(nbytes: number, grows = false): number {
  const step = Math.max(grows ? ROOM : GRAIN, 2 ** Math.ceil(Math.log2(Math.max(1, nbytes))) / (grows ? CLASSES : 2 * CLASSES));
  return Math.max(1, Math.ceil(nbytes / step)) * step;
}

export class Temps {
  #buffers: GPUBuffer[] = [];
  /** The buffers of each plan. */
  readonly #users = new Set<ReadonlySet<GPUBuffer>>();

  constructor(private readonly gpu: Gpu) {}

  /**
   * Returns one buffer per size (bytes), none of them in a plan's `used`, and adds them to it. Reuses those of other plans
   * first. `label` names a new one.
   */
  take(sizes: readonly number[], used: Set<GPUBuffer>, label: (k: number) => string): GPUBuffer[] {
    this.#users.add(used);
    const free = this.#buffers.filter((buffer) => !used.has(buffer)).sort((a, b) => a.size - b.size);
    const out: GPUBuffer[] = [];
    const largestFirst = sizes.map((_, k) => k).sort((a, b) => sizes[b]! - sizes[a]!);
    for (const k of largestFirst) {
      const wanted = sizeClass(sizes[k]!);
      const place = free.findIndex((buffer) => buffer.size >= wanted);
      const buffer = place < 0 ? this.#make(wanted, label(k)) : free.splice(place, 1)[0]!;
      used.add(buffer);
      out[k] = buffer;
    }
    return out;
  }

  #make(size: number, label: string): GPUBuffer {
    const buffer = this.gpu.storage(size, label);
    this.#buffers.push(buffer);
    return buffer;
  }

  /** Frees the buffers that only the plan of `used` has. */
  leave(used: ReadonlySet<GPUBuffer>): void {
    this.#users.delete(used);
    const users = [...this.#users];
    this.#buffers = this.#buffers.filter((buffer) => {
      const stays = users.some((it) => it.has(buffer));
      if (!stays) this.gpu.free(buffer);
      return stays;
    });
  }
}
