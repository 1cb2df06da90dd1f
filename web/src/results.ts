// Buffers that results leave a run in: on the device, or on their way to memory. Freed ones serve the next results.

import { type Gpu, USAGE } from './device.js';
import { bindingBytes } from './plan.js';
import { sizeClass } from './temps.js';

const MAX_STAGING = 4; // buffers kept for reading results
const KEPT = 4; // runs after which a buffer that no result took is given up

export class ResultBuffers {
  readonly #staging: GPUBuffer[] = [];
  /** By size; with the run after which each was freed. */
  readonly #free = new Map<number, { readonly buffer: GPUBuffer; readonly run: number }[]>();
  #run = 0;
  #released = false;

  constructor(private readonly gpu: Gpu) {}

  /** Begins a run. Results that grow with each run leave buffers of sizes behind that never come again: they go. */
  next(): void {
    this.#run += 1;
    for (const [size, all] of this.#free) {
      const kept = all.filter((it) => it.run > this.#run - KEPT);
      for (const it of all) if (!kept.includes(it)) this.gpu.free(it.buffer);
      if (kept.length) this.#free.set(size, kept);
      else this.#free.delete(size);
    }
  }

  /** A buffer for a result of `nbytes` that stays on the device. */
  take(nbytes: number): GPUBuffer {
    const size = sizeClass(bindingBytes(nbytes));
    return this.#free.get(size)?.pop()?.buffer ?? this.gpu.storage(size, 'a result');
  }

  /** Takes back a buffer of `take`. */
  recycle(buffer: GPUBuffer): void {
    if (this.#released || this.gpu.lost) this.gpu.free(buffer);
    else this.#free.set(buffer.size, [...(this.#free.get(buffer.size) ?? []), { buffer, run: this.#run }]);
  }

  /** A buffer of at least `size` bytes that can be mapped and read. */
  stage(size: number): GPUBuffer {
    const found = this.#staging.findIndex((it) => it.size >= size);
    if (found >= 0) return this.#staging.splice(found, 1)[0]!;
    return this.gpu.buffer(size, USAGE.MAP_READ | USAGE.COPY_DST, 'readback');
  }

  /** Takes back a mapped buffer of `stage`. */
  unstage(buffer: GPUBuffer): void {
    buffer.unmap();
    if (this.#released) this.gpu.free(buffer);
    else {
      this.#staging.push(buffer);
      // The smallest goes: larger ones serve smaller results, too.
      this.#staging.sort((a, b) => a.size - b.size);
      if (this.#staging.length > MAX_STAGING) this.gpu.free(this.#staging.shift()!);
    }
  }

  /** Frees what nobody has; what comes back later is freed then. */
  release(): void {
    this.#released = true;
    for (const buffer of [...this.#staging, ...[...this.#free.values()].flat().map((it) => it.buffer)]) this.gpu.free(buffer);
    this.#free.clear();
    this.#staging.length = 0;
  }
}
