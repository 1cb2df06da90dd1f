// Values between the parts of a run, in memory or on the GPU, with reference counts. In: the buffers of a session. Out: the same.
// Invariant: a buffer is returned when nothing refers to it, and the rest when the run ends or fails.

import type { Result } from '../bound.js';
import type { Gpu } from '../device.js';
import type { ResultBuffers } from '../results.js';

/** A value: elements in memory, or in a buffer that may be larger. */
export interface Item {
  readonly dims: readonly number[];
  readonly bytes?: Uint8Array | undefined;
  readonly buffer?: GPUBuffer | undefined;
  holders: number;
}

/** The number of the last buffer. Buffers are numbered in the order of their first use. */
let serial = 0;

export class Values {
  /** The buffers of this run. */
  readonly #own = new Set<GPUBuffer>();
  /** The buffers that were returned. */
  readonly #back = new Set<GPUBuffer>();

  /** `wrong` makes an error from a message. */
  constructor(
    readonly gpu: Gpu, private readonly results: ResultBuffers, private readonly met: WeakMap<GPUBuffer, number>,
    readonly wrong: (message: string) => Error,
  ) {}

  /** Takes a result of a part, with one reference. */
  made({ dims, bytes, buffer }: Result): Item {
    if (buffer) this.#has(buffer);
    return { dims, bytes: bytes && new Uint8Array(bytes), buffer, holders: 1 };
  }

  /** Takes a value of the caller. */
  given({ dims, bytes, buffer }: { dims: readonly number[]; bytes?: Uint8Array; buffer?: GPUBuffer }): Item {
    return { dims, bytes, buffer, holders: 1 };
  }

  /** Takes a buffer. */
  take(nbytes: number, label: string): GPUBuffer {
    const buffer = this.results.take(nbytes, label);
    this.#has(buffer);
    return buffer;
  }

  hold(item: Item): Item {
    item.holders += 1;
    return item;
  }

  leave(item: Item): void {
    item.holders -= 1;
    if (!item.holders && item.buffer) this.#free(item.buffer);
  }

  #has(buffer: GPUBuffer): void {
    this.#own.add(buffer);
    this.#back.delete(buffer);
    if (!this.met.has(buffer)) this.met.set(buffer, (serial += 1));
  }

  #free(buffer: GPUBuffer): void {
    if (!this.#own.delete(buffer)) return;
    this.#back.add(buffer);
    this.results.recycle(buffer);
  }

  /** Whether the value is in a buffer of this run and has no other reference. */
  isAlone(item: Item): boolean {
    return item.holders === 1 && this.#own.has(item.buffer!);
  }

  /** Passes a buffer of this run to the caller. */
  hand(buffer: GPUBuffer): void {
    this.#own.delete(buffer);
  }

  /** Returns the `nbytes` bytes of a value with one element, synchronously if it is in memory. */
  bytes({ dims, bytes, buffer }: Item, nbytes: number): Uint8Array | Promise<Uint8Array> {
    if (dims.some((it) => it !== 1)) throw this.wrong(`what decides which part runs has the shape [${dims.join(', ')}], and needs one element`);
    return bytes ?? this.gpu.read(buffer!, nbytes).then((it) => new Uint8Array(it));
  }

  /** Whether a bool is not 0; synchronous if it is in memory. */
  truth(item: Item): boolean | Promise<boolean> {
    const bytes = this.bytes(item, 1);
    return bytes instanceof Promise ? bytes.then(([it]) => !!it) : !!bytes[0];
  }

  /** Ends the run. The free buffers are sorted by first use, so that the next run takes and binds the same ones. */
  end(): void {
    for (const it of [...this.#own]) this.#free(it);
    const again = [...this.#back].map((it) => this.results.take(it.size, ''));
    again.sort((a, b) => (this.met.get(b) ?? 0) - (this.met.get(a) ?? 0));
    for (const it of again) this.results.recycle(it);
  }
}
