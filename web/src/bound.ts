// Certain sizes with certain buffers of callers. What a run binds, copies and reads is determined once, so the next run with
// the same buffers only encodes. In: tensors in memory or in buffers. Out: the same. Invariant: a buffer is checked before it
// is bound.

import { InputError } from './errors.js';
import type { Layout } from './layout.js';
import { type Groups, type Plan, bindingBytes } from './plan.js';
import type { Profiled } from './profile.js';

const MAX_BOUND = 8; // kept sets of callers' buffers per set of sizes

/** An input: `bytes` in memory, or a `buffer`. */
export interface Feed {
  readonly dims: readonly number[];
  readonly bytes?: Uint8Array;
  readonly buffer?: GPUBuffer;
}

/** A caller's buffer for an output, with the shape that the caller expects. */
export interface Given {
  readonly buffer: GPUBuffer;
  readonly dims: readonly number[];
}

/** Where a run stores an output: in memory, in the session's buffer for it, in a given buffer, or nowhere. */
export type Place = 'cpu' | 'kept' | Given | undefined;

export interface Result {
  readonly dims: readonly number[];
  /** In memory, if it was wanted there. */
  readonly bytes?: ArrayBuffer;
  readonly buffer?: GPUBuffer;
}

interface Copy {
  readonly from: GPUBuffer;
  readonly to: GPUBuffer;
  readonly bytes: number;
}

/** The number of bytes to copy for a tensor. WebGPU copies whole words. */
const copied = (nbytes: number): number => Math.ceil(nbytes / 4) * 4;

export class Bound {
  /** The results, without the bytes of those in memory. */
  readonly results: readonly Result[];
  /** The size of the buffer from which results in memory are read. */
  bytes = 0;
  /** Whether some of the buffers are callers', which may be destroyed before the next run. */
  readonly foreign: boolean;
  /** Whether a run with it was accepted, or one with the same bind groups and no copies. */
  sure: boolean;
  readonly layout: Layout;
  readonly #plan: Plan;
  readonly #callers = new Map<number, GPUBuffer>();
  readonly #inputs: readonly (GPUBuffer | undefined)[];
  /** The buffers of inputs in memory. */
  readonly #written: readonly (GPUBuffer | undefined)[];
  readonly #before: Copy[] = [];
  readonly #after: Copy[] = [];
  /** Copies to the staging buffer: source, and place in the staging buffer. */
  readonly #reads: { readonly result: number; readonly from: GPUBuffer; readonly at: number; readonly size: number }[] = [];
  #groups: Groups | undefined;

  /** Raises InputError for buffers that do not fit. */
  constructor({ plan, layout, kept }: Runs, feeds: readonly Feed[], private readonly places: readonly Place[]) {
    const { program } = plan;
    const callers = this.#callers;
    this.layout = layout;
    this.#plan = plan;
    this.#inputs = feeds.map((it) => it.buffer);
    this.foreign = [...this.#inputs, ...places].some((it) => typeof it === 'object');
    this.results = program.outputs.map((value, k) => {
      const place = places[k];
      const dims = layout.shapes[value]!;
      if (typeof place === 'object') {
        if (!isSame(place.dims, dims)) throw this.#wrongShape(value, place.dims);
        this.#fit(value, place.buffer, this.#after, true);
        return { dims, buffer: place.buffer };
      }
      const own = place === 'kept' ? kept(value) : plan.own(value);
      callers.set(value, own);
      if (place === 'kept') return { dims, buffer: own };
      if (place) {
        const size = bindingBytes(layout.nbytes[value]!);
        this.#reads.push({ result: k, from: own, at: this.bytes, size });
        this.bytes += size;
      }
      return { dims };
    });
    const made = this.results.flatMap((it) => it.buffer ?? []);
    if (made.length > new Set(made).size) {
      throw new InputError('two outputs are to go into one buffer: give each a buffer of its own');
    }
    const bound = new Set(callers.values()); // the buffers of outputs, wanted or not
    // No dispatch reads an input that is in the buffer of the output which begins as it.
    const updated = new Map(layout.aliases.map(([output, input]) => [input, callers.get(output)]));
    this.#written = program.inputs.map((value, k) => {
      const { buffer } = feeds[k]!;
      if (buffer && buffer !== updated.get(value)) this.#fit(value, buffer, this.#before, false, bound.has(buffer));
      else callers.set(value, buffer ?? plan.own(value));
      return buffer ? undefined : callers.get(value);
    });
    for (const [output, input] of layout.aliases) {
      const [from, to] = [callers.get(input)!, callers.get(output)!];
      if (from !== to) this.#before.push({ from, to, bytes: copied(layout.nbytes[output]!) });
    }
    this.#groups = plan.bound([...callers.values()]);
    // Copies may use buffers that no bind group has.
    this.sure = !!this.#groups && !this.#before.length && !this.#after.length;
  }

  #wrongShape(value: number, given: readonly number[]): InputError {
    const { layout } = this;
    const { program } = this.#plan;
    return new InputError(
      `output '${program.values[value]!.name}' has shape [${layout.shapes[value]!.join(', ')}], the tensor passed for it has [${given.join(', ')}]`,
    );
  }

  /** Binds a caller's buffer, or a copy if the buffer cannot be bound. */
  #fit(value: number, buffer: GPUBuffer, copies: Copy[], output: boolean, shared = false): void {
    const bytes = this.layout.nbytes[value]!;
    if (!(buffer.size >= copied(bytes))) {
      throw new InputError(
        `the tensor '${this.#plan.program.values[value]!.name}' takes ${bytes} bytes, its buffer has ${buffer.size}: pass one of at least ${copied(bytes)} bytes`,
      );
    }
    // WebGPU forbids a dispatch to read and write one buffer, and kernels load 16 bytes at once.
    const fits = !shared && buffer.size >= bindingBytes(bytes);
    const own = fits ? buffer : this.#plan.own(value);
    this.#callers.set(value, own);
    if (fits || !bytes) return;
    copies.push(output ? { from: own, to: buffer, bytes: copied(bytes) } : { from: buffer, to: own, bytes: copied(bytes) });
  }

  /** Whether a run with these feeds and places uses the same buffers. */
  matches(feeds: readonly Feed[], places: readonly Place[]): boolean {
    for (let k = 0; k < feeds.length; k++) if (feeds[k]!.buffer !== this.#inputs[k]) return false;
    for (let k = 0; k < places.length; k++) {
      const [place, known] = [places[k], this.places[k]];
      if (place === known) continue;
      if (typeof place !== 'object' || typeof known !== 'object' || place.buffer !== known.buffer) return false;
      if (!isSame(place.dims, this.results[k]!.dims)) return false;
    }
    return true;
  }

  /** Call this after the device accepted a run with it. */
  keep(): void {
    if (this.sure) return;
    this.sure = true;
    this.#plan.keep([...this.#callers.values()], this.#groups!);
  }

  /** Writes inputs in memory, encodes and submits. Results in memory are then in `staging`. */
  submit(feeds: readonly Feed[], staging?: GPUBuffer, profiled?: Profiled): void {
    const { gpu } = this.#plan;
    const groups = (this.#groups ??= this.#plan.bind(this.#callers));
    for (let k = 0; k < feeds.length; k++) {
      const own = this.#written[k];
      if (own) gpu.write(own, 0, feeds[k]!.bytes!);
    }
    const encoder = gpu.device.createCommandEncoder();
    for (const it of this.#before) encoder.copyBufferToBuffer(it.from, 0, it.to, 0, it.bytes);
    if (profiled) profiled.encode(encoder, this.#plan, groups);
    else this.#plan.encode(encoder, groups);
    for (const it of this.#after) encoder.copyBufferToBuffer(it.from, 0, it.to, 0, it.bytes);
    for (const it of this.#reads) encoder.copyBufferToBuffer(it.from, 0, staging!, it.at, it.size);
    gpu.queue.submit([encoder.finish()]);
  }

  /** Returns the results of a run. Those in memory are read from the mapped `staging`. */
  read(staging: GPUBuffer): Result[] {
    const { layout } = this;
    const { program } = this.#plan;
    const found = [...this.results];
    for (const { result, at, size } of this.#reads) {
      const bytes = layout.nbytes[program.outputs[result]!]!;
      found[result] = { dims: found[result]!.dims, bytes: staging.getMappedRange(at, size).slice(0, bytes) };
    }
    return found;
  }
}

/** A plan for certain sizes, and the sets of callers' buffers of its last runs. */
export class Runs {
  readonly #dims: readonly (readonly number[])[];
  #kept: Bound[] = [];

  /**
   * `before` has the bytes of tensors in the previous similar run, if any. `key` identifies the shapes. `kept` returns the
   * session's buffer for an output of these shapes, which only their runs write.
   */
  constructor(
    readonly plan: Plan, readonly layout: Layout, readonly before: readonly number[], readonly key: string, readonly kept: (value: number) => GPUBuffer, feeds: readonly Feed[],
  ) {
    this.#dims = feeds.map((it) => [...it.dims]);
  }

  /** Whether the shapes of these inputs match. */
  takes(feeds: readonly Feed[]): boolean {
    for (let k = 0; k < feeds.length; k++) if (!isSame(feeds[k]!.dims, this.#dims[k]!)) return false;
    return !this.plan.released;
  }

  /** Returns the Bound for these buffers, a kept one or a new one. Raises InputError for buffers that do not fit. */
  find(feeds: readonly Feed[], places: readonly Place[]): Bound {
    const last = this.#kept.length - 1;
    for (let k = last; k >= 0; k--) {
      const bound = this.#kept[k]!;
      if (!bound.matches(feeds, places)) continue;
      if (k < last) this.#kept.push(...this.#kept.splice(k, 1)); // move to the end
      return bound;
    }
    return new Bound(this, feeds, places);
  }

  /** Keeps a Bound after its run was accepted. A Bound with an error is not kept, so every run with it reports the error. */
  keep(bound: Bound): void {
    if (this.plan.released || this.#kept.includes(bound)) return;
    bound.keep();
    this.#kept.push(bound);
    if (this.#kept.length > MAX_BOUND) this.#kept.shift();
  }
}

function isSame(dims: readonly number[], others: readonly number[]): boolean {
  if (dims.length !== others.length) return false;
  for (let k = 0; k < dims.length; k++) if (dims[k] !== others[k]) return false;
  return true;
}
