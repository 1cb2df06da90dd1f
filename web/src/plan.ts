// A Program on a device, for layouts that run the same kernels: buffers, uniforms, pipelines and bind groups. Buffers that
// callers own come with each run. Bind groups without such buffers are made once. If sizes change, numbers are written and
// nothing is created. Invariant: the numbers of a run's layout are written immediately before the run.

import { bindingsOf, type Gpu, USAGE } from './device.js';
import { integerBytes } from './dtypes.js';
import { LimitError } from './errors.js';
import { type Layout, type Slots, type Step, slotsOf } from './layout.js';
import type { Postfix } from './postfix.js';
import type { BindingRange, Kernel, Program } from './program.js';
import { ROOM, type Temps } from './temps.js';

const UNIFORM_WORDS = 64; // alignment of blocks
const MAX_BOUND = 8; // sets of callers' buffers with kept bind groups

interface PlannedStep {
  readonly dispatch: number;
  readonly kernel: number;
  readonly pipeline: GPUComputePipeline;
  /** Undefined for a caller's buffer. */
  readonly entries: readonly (GPUBufferBinding | undefined)[];
  readonly args: readonly number[];
  readonly ranges: Step['ranges'];
  readonly group: GPUBindGroup | undefined;
}

/** The bind groups of all steps with one set of callers' buffers. */
export type Groups = readonly GPUBindGroup[];

export type Variant = readonly [kernel: Kernel, variant: number];

/**
 * Returns the kernels of a layout's steps, those with the longest texts first. A run waits for all of them, and these take
 * longest. So none is left for the end, when other threads are idle.
 */
export function variantsOf(program: Program, { steps }: Layout): Variant[] {
  return steps.map((it): Variant => variantOf(program, it)).sort((a, b) => textOf(b).length - textOf(a).length);
}

const variantOf = (program: Program, it: Step): Variant => [program.kernels[program.dispatches[it.dispatch]!.kernel]!, it.variant];
const textOf = ([kernel, variant]: Variant): string => kernel.wgsl[variant]!;

/** Returns the pipelines of a layout's steps. Compiles new ones. Raises ProgramError. */
export function pipelinesOf(program: Program, gpu: Gpu, layout: Layout): Promise<GPUComputePipeline[]> {
  for (const it of variantsOf(program, layout)) void gpu.pipeline(...it).catch(() => undefined);
  return Promise.all(layout.steps.map((it) => gpu.pipeline(...variantOf(program, it))));
}

export class Plan {
  readonly steps: readonly PlannedStep[];
  /** For each step, the pipeline if it differs from the previous one, and the workgroups along x and y. */
  readonly #pipelines: readonly (GPUComputePipeline | undefined)[];
  readonly #grids: Uint32Array;
  /** The numbers of all uniform blocks, and the beginning of each, by a step that reads it. */
  readonly #words: Uint32Array;
  readonly #blocks: readonly (readonly [step: number, at: number])[];
  #uniforms: GPUBuffer | undefined;
  /** The buffers of the session's temps that it uses. */
  readonly #used = new Set<GPUBuffer>();
  /** The buffers of all values except callers'. */
  readonly buffers = new Map<number, GPUBuffer>();
  /** For inputs, outputs and copies of them. */
  readonly owned = new Map<number, GPUBuffer>();
  readonly #private: GPUBuffer[] = [];
  /** The last sets of callers' buffers, with their bind groups. */
  readonly #bound: (readonly [buffers: readonly GPUBuffer[], groups: Groups])[] = [];
  /** The largest binding in bytes. */
  readonly most: number;
  released = false;

  /** `before` is the layout of a plan that it replaces because sizes grew. */
  constructor(
    readonly program: Program,
    readonly gpu: Gpu,
    public layout: Layout,
    pipelines: readonly GPUComputePipeline[],
    private readonly temps: Temps,
    weights: readonly GPUBuffer[],
    states: ReadonlyMap<string, GPUBuffer>,
    private readonly before?: Layout,
  ) {
    this.most = Math.floor(Math.min(gpu.limits.maxStorageBufferBindingSize, gpu.limits.maxBufferSize) / 16) * 16;
    const { slotOf, slots: sizes } = slotsOf(program, layout);
    const wanted = [...sizes];
    for (const [value, slot] of slotOf) wanted[slot] = Math.max(wanted[slot]!, this.#room(value));
    checkLimits(program, gpu, layout, slotOf);
    const slots = temps.take(wanted, this.#used, (slot) => {
      // The largest value of the slot.
      const [value] = [...slotOf].find(([it, of]) => of === slot && layout.nbytes[it] === sizes[slot])!;
      return nameOf(program, layout, value);
    });
    for (const [value, slot] of slotOf) this.buffers.set(value, slots[slot]!);
    program.values.forEach((value, k) => {
      if (value.storage === 'WEIGHT') this.buffers.set(k, weights[value.weight]!);
      else if (value.storage === 'HOST') this.buffers.set(k, this.#host(k));
      else if (value.storage === 'STATE') this.buffers.set(k, states.get(value.name)!);
    });
    const blocks = new Map<string, readonly [step: number, at: number]>();
    let words = 0;
    const numbers = new Map<Postfix, number>();
    const places = layout.steps.map(({ dispatch, uniforms, repeats }, k): number => {
      // Steps share a block if the same expressions compute it. Repeated dispatches share equal blocks, because their sizes stay.
      const how = repeats > 1 ? uniforms : program.dispatches[dispatch]!.uniforms.map((it) => `#${numbers.get(it) ?? (numbers.set(it, numbers.size), numbers.size - 1)}`);
      const found = blocks.get(how.join());
      if (found) return found[1];
      const at = words;
      blocks.set(how.join(), [k, at]);
      words += Math.ceil(uniforms.length / UNIFORM_WORDS) * UNIFORM_WORDS;
      return at;
    });
    this.#blocks = [...blocks.values()];
    this.#words = new Uint32Array(words);
    if (words) this.#private.push((this.#uniforms = gpu.buffer(4 * words, USAGE.UNIFORM | USAGE.COPY_DST, 'uniforms')));
    this.steps = layout.steps.map(({ dispatch, ranges, uniforms }, k) => {
      const { args, kernel } = program.dispatches[dispatch]!;
      const entries = args.map((arg, place): GPUBufferBinding | undefined => {
        const buffer = this.buffers.get(arg);
        return buffer && this.#part(buffer, ranges[place]);
      });
      if (program.kernels[kernel]!.uniforms) entries.push({ buffer: this.#uniforms!, offset: 4 * places[k]!, size: bindingBytes(4 * uniforms.length) });
      const group = entries.includes(undefined) ? undefined : this.#group(kernel, entries as GPUBufferBinding[]);
      return { dispatch, kernel, pipeline: pipelines[k]!, entries, args, ranges, group };
    });
    this.#pipelines = pipelines.map((it, k) => (it === pipelines[k - 1] ? undefined : it));
    this.#grids = new Uint32Array(2 * pipelines.length);
    this.#write();
  }

  /** Switches to a layout for which it has room. */
  use(layout: Layout): void {
    if (layout === this.layout) return;
    const { elements, steps } = this.layout;
    this.layout = layout;
    for (const [value, numbers] of layout.elements) {
      if (`${numbers}` !== `${elements.get(value)}`) this.gpu.write(this.buffers.get(value)!, 0, this.#hostBytes(value));
    }
    this.#write(steps);
  }

  /** Writes the numbers that have changed. */
  #write(before: readonly Step[] = []): void {
    const { steps } = this.layout;
    steps.forEach((it, k) => it === before[k] || this.#grids.set([it.grid[0], it.grid[1]], 2 * k));
    const words = this.#words;
    let [first, last] = [words.length, 0];
    for (const [step, at] of this.#blocks) {
      if (steps[step] === before[step]) continue;
      steps[step]!.uniforms.forEach((number, k) => {
        const place = at + k;
        if (words[place] === number) return;
        words[place] = number;
        first = Math.min(first, place);
        last = place + 1;
      });
    }
    if (last) this.gpu.write(this.#uniforms!, 4 * first, new Uint8Array(words.buffer, 4 * first, 4 * (last - first)));
  }

  /** Bytes for a tensor, with spare room if it grew. */
  #room(value: number): number {
    const bytes = this.layout.nbytes[value]!;
    const before = this.before?.nbytes[value] ?? bytes;
    return before < bytes ? Math.max(bytes, Math.min(this.most, bytes + Math.max(ROOM, bytes / 4))) : before;
  }

  #host(value: number): GPUBuffer {
    const bytes = this.#hostBytes(value);
    const buffer = this.gpu.storage(bytes.length, 'a shape or other small value');
    this.#private.push(buffer);
    this.gpu.write(buffer, 0, bytes);
    return buffer;
  }

  #hostBytes(value: number): Uint8Array {
    return integerBytes(this.program.values[value]!.dtype, this.layout.elements.get(value)!);
  }

  /** Returns the binding of a buffer: all of it, so that its tensor may grow, or a range. */
  #part(buffer: GPUBuffer, range: BindingRange<number> | undefined): GPUBufferBinding {
    const [offset, bytes] = range ?? [0, this.most];
    return { buffer, offset, size: Math.min(bindingBytes(bytes), buffer.size - offset) };
  }

  #group(kernel: number, entries: readonly GPUBufferBinding[]): GPUBindGroup {
    const { group } = this.gpu.layout(bindingsOf(this.program.kernels[kernel]!));
    return this.gpu.device.createBindGroup({
      layout: group,
      entries: entries.map((resource, binding) => ({ binding, resource })),
    });
  }

  /**
   * Returns a buffer for an input or output, or for a copy of one, the same in every run. Other plans write it too, so its
   * contents are valid for one run.
   */
  own(value: number): GPUBuffer {
    let buffer = this.owned.get(value);
    if (!buffer) {
      const label = (): string => nameOf(this.program, this.layout, value);
      [buffer] = this.temps.take([this.#room(value)], this.#used, label) as [GPUBuffer];
      this.owned.set(value, buffer);
    }
    return buffer;
  }

  /** Returns the kept bind groups for these buffers of callers, inputs and outputs in the order of the program. */
  bound(buffers: readonly GPUBuffer[]): Groups | undefined {
    const all = this.#bound;
    const place = all.findLastIndex(([it]) => it.every((buffer, k) => buffer === buffers[k]));
    if (place < 0) return undefined;
    all.push(...all.splice(place, 1)); // move to the end
    return all.at(-1)![1];
  }

  /** Binds callers' buffers, by value. */
  bind(callers: ReadonlyMap<number, GPUBuffer>): Groups {
    return this.steps.map((step) => {
      if (step.group) return step.group;
      const entries = step.entries.map((entry, k) => entry ?? this.#part(callers.get(step.args[k]!)!, step.ranges[k]));
      return this.#group(step.kernel, entries);
    });
  }

  /** Keeps bind groups after a run with them was accepted. */
  keep(buffers: readonly GPUBuffer[], groups: Groups): void {
    if (this.#bound.push([buffers, groups]) > MAX_BOUND) this.#bound.shift();
  }

  /** Encodes all steps in one pass, with groups of `bind`. This is most of a run, so it touches little memory. */
  encode(encoder: GPUCommandEncoder, groups: Groups): void {
    const pass = encoder.beginComputePass();
    const [pipelines, grids] = [this.#pipelines, this.#grids];
    for (let k = 0; k < groups.length; k++) {
      const pipeline = pipelines[k];
      if (pipeline) pass.setPipeline(pipeline);
      pass.setBindGroup(0, groups[k]!);
      pass.dispatchWorkgroups(grids[2 * k]!, grids[2 * k + 1]!);
    }
    pass.end();
  }

  /** Frees the plan's own buffers. It must not run again. */
  release(): void {
    this.released = true;
    for (const buffer of this.#private) this.gpu.free(buffer);
    this.temps.leave(this.#used);
  }
}

/** The bytes of the binding of a tensor of `nbytes`. Kernels load four words at once. */
export function bindingBytes(nbytes: number): number {
  return Math.max(16, Math.ceil(nbytes / 16) * 16);
}

/** Describes a tensor for messages. */
export function nameOf({ values }: Program, { shapes }: Layout, value: number): string {
  const { name } = values[value]!;
  return `the tensor ${name ? `'${name}'` : 'of an intermediate result'} of shape [${shapes[value]!.join(', ')}]`;
}

function checkLimits(program: Program, gpu: Gpu, layout: Layout, slotOf: Slots['slotOf']): void {
  const { maxStorageBufferBindingSize: binding, maxBufferSize: whole } = gpu.limits;
  const bound = new Set(
    layout.steps.flatMap(({ dispatch, ranges }) => program.dispatches[dispatch]!.args.filter((_, k) => !ranges[k])),
  );
  program.values.forEach(({ storage }, k) => {
    if (storage === 'TEMP' && !slotOf.has(k)) return; // unused by running dispatches
    const bytes = layout.nbytes[k]!;
    const [most, limit] = bound.has(k) && binding < whole ? [binding, 'maxStorageBufferBindingSize'] : [whole, 'maxBufferSize'];
    if (bytes <= most) return;
    throw new LimitError(
      `${nameOf(program, layout, k)} takes ${bytes} bytes, this device allows ${most} (${limit}): use a smaller input`,
    );
  });
}
