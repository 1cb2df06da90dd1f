// The buffers of results: on the device, or for readback. Freed ones are reused for later results. The buffers of results that
// stay in place belong to the session.

import { type Gpu, USAGE } from './device.js';
import { bindingBytes } from './plan.js';
import { sizeClass } from './temps.js';

const MAX_STAGING = 4; // kept staging buffers
const KEPT = 4; // runs after which an unused buffer is freed

export class ResultBuffers {
  readonly #staging: GPUBuffer[] = [];
  /** By size; with the run after which each was freed, the earliest first. */
  readonly #free = new Map<number, { readonly buffer: GPUBuffer; readonly run: number }[]>();
  readonly #kept = new Map<string, GPUBuffer>();
  readonly #empty = new Set<GPUBuffer>();
  #run = 0;
  #released = false;

  constructor(private readonly gpu: Gpu) {}

  /** Begins a run. Frees unused buffers, because results that grow with each run leave sizes behind that are not needed again. */
  next(): void {
    this.#run += 1;
    for (const [size, all] of this.#free) {
      while (all[0] && all[0].run <= this.#run - KEPT) this.gpu.free(all.shift()!.buffer);
      if (!all.length) this.#free.delete(size);
    }
  }

  /**
   * Returns a buffer for a result of `nbytes` that stays on the device. `label` names it. If the result `grows` from run to
   * run, the buffer has spare room.
   */
  take(nbytes: number, label: string, grows = false): GPUBuffer {
    const size = sizeClass(bindingBytes(nbytes), grows);
    return this.#free.get(size)?.pop()?.buffer ?? this.gpu.storage(size, label);
  }

  /**
   * Returns the buffer of results with this name that have no elements. Callers need not dispose of these, and transformers.js
   * does not.
   */
  empty(name: string): GPUBuffer {
    const buffer = this.keep(`empty ${name}`, 0, name);
    this.#empty.add(buffer);
    return buffer;
  }

  /** Returns a buffer of `take` to the pool. Those of `empty` stay. */
  recycle(buffer: GPUBuffer): void {
    if (this.#empty.has(buffer)) return;
    if (this.#released || this.gpu.lost) this.gpu.free(buffer);
    else {
      const all = this.#free.get(buffer.size) ?? [];
      all.push({ buffer, run: this.#run });
      this.#free.set(buffer.size, all);
    }
  }

  /**
   * Returns the buffer of results with this name, `nbytes` each, the same every time. Callers refer to it, so it outlives
   * plans.
   */
  keep(name: string, nbytes: number, label: string): GPUBuffer {
    let buffer = this.#kept.get(name);
    if (!buffer) this.#kept.set(name, (buffer = this.gpu.storage(bindingBytes(nbytes), label)));
    return buffer;
  }

  /** Returns a buffer of at least `size` bytes that can be mapped and read. */
  stage(size: number): GPUBuffer {
    const found = this.#staging.findIndex((it) => it.size >= size);
    if (found >= 0) return this.#staging.splice(found, 1)[0]!;
    return this.gpu.buffer(size, USAGE.MAP_READ | USAGE.COPY_DST, 'readback');
  }

  /** Returns a mapped buffer of `stage` to the pool. */
  unstage(buffer: GPUBuffer): void {
    buffer.unmap();
    if (this.#released) this.gpu.free(buffer);
    else {
      this.#staging.push(buffer);
      // Frees the smallest one, because larger ones also serve smaller results.
      this.#staging.sort((a, b) => a.size - b.size);
      if (this.#staging.length > MAX_STAGING) this.gpu.free(this.#staging.shift()!);
    }
  }

  /** Frees unused buffers. Those that are returned later are freed then. */
  release(): void {
    this.#released = true;
    const free = [...this.#free.values()].flat().map((it) => it.buffer);
    for (const buffer of [...this.#staging, ...free, ...this.#kept.values()]) this.gpu.free(buffer);
    this.#free.clear();
    this.#kept.clear();
    this.#staging.length = 0;
  }
}
