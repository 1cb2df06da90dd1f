// Buffers that results leave a run in: on the device, or on their way to memory. Freed ones serve the next results; those of
// results that stay in place have no other owner until the session ends.

import { type Gpu, USAGE } from './device.js';
import { bindingBytes } from './plan.js';
import { sizeClass } from './temps.js';

const MAX_STAGING = 4; // buffers kept for reading results
const KEPT = 4; // runs after which a buffer that no result took is given up

export class ResultBuffers {
  readonly #staging: GPUBuffer[] = [];
  /** By size; with the run after which each was freed, first the earliest. */
  readonly #free = new Map<number, { readonly buffer: GPUBuffer; readonly run: number }[]>();
  readonly #kept = new Map<string, GPUBuffer>();
  readonly #empty = new Set<GPUBuffer>();
  #run = 0;
  #released = false;

  constructor(private readonly gpu: Gpu) {}

  /** Begins a run. Results that grow with each run leave buffers of sizes behind that never come again: they go. */
  next(): void {
    this.#run += 1;
    for (const [size, all] of this.#free) {
      while (all[0] && all[0].run <= this.#run - KEPT) this.gpu.free(all.shift()!.buffer);
      if (!all.length) this.#free.delete(size);
    }
  }

  /** A buffer for a result of `nbytes` that stays on the device; `label` says which. One that `grows` from run to run has room. */
  take(nbytes: number, label: string, grows = false): GPUBuffer {
    const size = sizeClass(bindingBytes(nbytes), grows);
    return this.#free.get(size)?.pop()?.buffer ?? this.gpu.storage(size, label);
  }

  /** The buffer of the results of this name that have no elements: callers need not dispose of these, and transformers.js does not. */
  empty(name: string): GPUBuffer {
    const buffer = this.keep(`empty ${name}`, 0, name);
    this.#empty.add(buffer);
    return buffer;
  }

  /** Takes back a buffer of `take`; those of `empty` stay. */
  recycle(buffer: GPUBuffer): void {
    if (this.#empty.has(buffer)) return;
    if (this.#released || this.gpu.lost) this.gpu.free(buffer);
    else {
      const all = this.#free.get(buffer.size) ?? [];
      all.push({ buffer, run: this.#run });
      this.#free.set(buffer.size, all);
    }
  }

  /** The buffer of the results of this name, `nbytes` each: the same every time. Callers have them, so they outlive plans. */
  keep(name: string, nbytes: number, label: string): GPUBuffer {
    let buffer = this.#kept.get(name);
    if (!buffer) this.#kept.set(name, (buffer = this.gpu.storage(bindingBytes(nbytes), label)));
    return buffer;
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

  /** Frees what is not in use; what comes back later is freed then. */
  release(): void {
    this.#released = true;
    const free = [...this.#free.values()].flat().map((it) => it.buffer);
    for (const buffer of [...this.#staging, ...free, ...this.#kept.values()]) this.gpu.free(buffer);
    this.#free.clear();
    this.#kept.clear();
    this.#staging.length = 0;
  }
}
