// A Program for one set of input shapes on a device: buffers, uniforms, pipelines and bind groups. Buffers that callers own
// arrive with each run; bind groups that mention none of them are made once.

import { bindingsOf, type Gpu, USAGE } from './device.js';
import { integerBytes } from './dtypes.js';
import { LimitError } from './errors.js';
import type { Grid, Layout, Step } from './layout.js';
import type { BindingRange, Program } from './program.js';
import type { Temps } from './temps.js';

const UNIFORM_ALIGNMENT = 256;

interface PlannedStep {
  readonly dispatch: number;
  readonly kernel: number;
  readonly pipeline: GPUComputePipeline;
  readonly grid: Grid;
  /** Undefined where a caller's buffer goes. */
  readonly entries: readonly (GPUBufferBinding | undefined)[];
  readonly args: readonly number[];
  readonly ranges: Step['ranges'];
  readonly group: GPUBindGroup | undefined;
}

/** The bind groups of all steps with one set of callers' buffers. */
export type Groups = readonly GPUBindGroup[];

/** The pipelines of a layout's steps, compiled where they are new. Raises ProgramError. */
export function pipelinesOf(program: Program, gpu: Gpu, layout: Layout): Promise<GPUComputePipeline[]> {
  return Promise.all(
    layout.steps.map((it) => gpu.pipeline(program.kernels[program.dispatches[it.dispatch]!.kernel]!, it.variant)),
  );
}

export class Plan {
  readonly steps: readonly PlannedStep[];
  /** Of each step the pipeline where it is another than before, and the workgroups along x and y. */
  readonly #pipelines: readonly (GPUComputePipeline | undefined)[];
  readonly #grids: Uint32Array;
  /** Buffers of the session's temps that it has. */
  readonly #used = new Set<GPUBuffer>();
  readonly #buffers = new Map<number, GPUBuffer>();
  /** For inputs, outputs and copies of them. */
  readonly #own = new Map<number, GPUBuffer>();
  readonly #private: GPUBuffer[] = [];
  released = false;

  constructor(
    readonly program: Program,
    readonly gpu: Gpu,
    readonly layout: Layout,
    pipelines: readonly GPUComputePipeline[],
    private readonly temps: Temps,
    weights: readonly GPUBuffer[],
    states: ReadonlyMap<string, GPUBuffer>,
    private readonly keep: (value: number, nbytes: number) => GPUBuffer,
  ) {
    checkLimits(program, gpu, layout);
    const slots = temps.take(layout.slots, this.#used, (slot) => {
      // The largest of those that it is for.
      const [value] = [...layout.slotOf].find(([it, of]) => of === slot && layout.nbytes[it] === layout.slots[slot])!;
      return nameOf(program, layout, value);
    });
    for (const [value, slot] of layout.slotOf) this.#buffers.set(value, slots[slot]!);
    program.values.forEach((value, k) => {
      if (value.storage === 'WEIGHT') this.#buffers.set(k, weights[value.weight]!);
      else if (value.storage === 'HOST') this.#buffers.set(k, this.#host(k));
      else if (value.storage === 'STATE') this.#buffers.set(k, states.get(value.name)!);
    });
    const uniforms = this.#uniforms();
    this.steps = layout.steps.map(({ dispatch, grid, uniforms: numbers, ranges }, k) => {
      const { args, kernel } = program.dispatches[dispatch]!;
      const entries = args.map((arg, place): GPUBufferBinding | undefined => {
        const buffer = this.#buffers.get(arg);
        return buffer && this.#part(buffer, arg, ranges[place]);
      });
      if (program.kernels[kernel]!.uniforms) entries.push(uniforms(numbers));
      const group = entries.includes(undefined) ? undefined : this.#group(kernel, entries as GPUBufferBinding[]);
      return { dispatch, kernel, pipeline: pipelines[k]!, grid, entries, args, ranges, group };
    });
    this.#pipelines = pipelines.map((it, k) => (it === pipelines[k - 1] ? undefined : it));
    this.#grids = Uint32Array.from(layout.steps.flatMap(({ grid }) => grid.slice(0, 2)));
  }

  #keep(size: number, usage: number, label: string, data: Uint8Array): GPUBuffer {
    const buffer = this.gpu.buffer(size, usage | USAGE.COPY_DST, label);
    this.#private.push(buffer);
    this.gpu.write(buffer, 0, data);
    return buffer;
  }

  #host(value: number): GPUBuffer {
    const bytes = integerBytes(this.program.values[value]!.dtype, this.layout.elements.get(value)!);
    return this.#keep(bytes.length, USAGE.STORAGE | USAGE.COPY_SRC, 'a shape or other small value', bytes);
  }

  /** All uniform blocks in one buffer; equal ones are there once. */
  #uniforms(): (numbers: readonly number[]) => GPUBufferBinding {
    const places = new Map<string, number>();
    const words: number[] = [];
    for (const { uniforms } of this.layout.steps) {
      if (!uniforms.length || places.has(uniforms.join())) continue;
      places.set(uniforms.join(), words.length * 4);
      words.push(...uniforms);
      while (words.length % (UNIFORM_ALIGNMENT / 4)) words.push(0);
    }
    if (!words.length) return () => ({}) as GPUBufferBinding;
    const data = new Uint8Array(Uint32Array.from(words).buffer);
    const buffer = this.#keep(data.length, USAGE.UNIFORM, 'uniforms', data);
    return (numbers) => ({ buffer, offset: places.get(numbers.join())!, size: bindingBytes(numbers.length * 4) });
  }

  /** What is bound of a value's buffer. */
  #part(buffer: GPUBuffer, value: number, range: BindingRange<number> | undefined): GPUBufferBinding {
    const [offset, bytes] = range ?? [0, this.layout.nbytes[value]!];
    return { buffer, offset, size: Math.min(bindingBytes(bytes), buffer.size - offset) };
  }

  #group(kernel: number, entries: readonly GPUBufferBinding[]): GPUBindGroup {
    const { group } = this.gpu.layout(bindingsOf(this.program.kernels[kernel]!));
    return this.gpu.device.createBindGroup({
      layout: group,
      entries: entries.map((resource, binding) => ({ binding, resource })),
    });
  }

  /** The session's buffer for an output of these shapes, which nothing but their runs writes. */
  kept(value: number): GPUBuffer {
    return this.keep(value, this.layout.nbytes[value]!);
  }

  /**
   * A buffer for an input or output, or for a copy of one: the same in every run. Other plans write into it, so that what it
   * holds is of one run.
   */
  own(value: number): GPUBuffer {
    let buffer = this.#own.get(value);
    if (!buffer) {
      const label = (): string => nameOf(this.program, this.layout, value);
      [buffer] = this.temps.take([this.layout.nbytes[value]!], this.#used, label) as [GPUBuffer];
      this.#own.set(value, buffer);
    }
    return buffer;
  }

  /** Binds callers' buffers. */
  bind(callers: ReadonlyMap<number, GPUBuffer>): Groups {
    return this.steps.map((step) => {
      if (step.group) return step.group;
      const entries = step.entries.map((entry, k) => {
        if (entry) return entry;
        const arg = step.args[k]!;
        return this.#part(callers.get(arg)!, arg, step.ranges[k]);
      });
      return this.#group(step.kernel, entries);
    });
  }

  /** All steps in one pass, with groups of `bind`. Runs do this and little else, so it touches little memory. */
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

  /** Frees what the plan alone uses; it must not run again. */
  release(): void {
    this.released = true;
    for (const buffer of this.#private) this.gpu.free(buffer);
    this.temps.leave(this.#used);
  }
}

/** Bytes that a tensor of `nbytes` binds: kernels load four words at once. */
export function bindingBytes(nbytes: number): number {
  return Math.max(16, Math.ceil(nbytes / 16) * 16);
}

/** A tensor as messages have it. */
export function nameOf({ values }: Program, { shapes }: Layout, value: number): string {
  const { name } = values[value]!;
  return `the tensor ${name ? `'${name}'` : 'of an intermediate result'} of shape [${shapes[value]!.join(', ')}]`;
}

function checkLimits(program: Program, gpu: Gpu, layout: Layout): void {
  const { maxStorageBufferBindingSize: binding, maxBufferSize: whole } = gpu.limits;
  const bound = new Set(
    layout.steps.flatMap(({ dispatch, ranges }) => program.dispatches[dispatch]!.args.filter((_, k) => !ranges[k])),
  );
  program.values.forEach(({ storage }, k) => {
    if (storage === 'TEMP' && !layout.slotOf.has(k)) return; // nothing that runs has it
    const bytes = layout.nbytes[k]!;
    const [most, limit] = bound.has(k) && binding < whole ? [binding, 'maxStorageBufferBindingSize'] : [whole, 'maxBufferSize'];
    if (bytes <= most) return;
    throw new LimitError(
      `${nameOf(program, layout, k)} takes ${bytes} bytes, this device allows ${most} (${limit}): use a smaller input`,
    );
  });
}
