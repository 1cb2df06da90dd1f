// A Program on a device, with its weights there. In: tensors in memory or in buffers. Out: the same. Invariants: everything
// that a run needs is written, encoded and submitted without anything else of this thread in between; callers' buffers are
// checked before they are bound.

import type { Gpu } from './device.js';
import { element } from './elements.js';
import { InputError, LimitError } from './errors.js';
import { type Layout, Layouts } from './layout.js';
import type { Package } from './package.js';
import { type Groups, Plan, bindingBytes, pipelinesOf } from './plan.js';
import { evaluate, type Int } from './postfix.js';
import type { Program } from './program.js';
import { Profiled, type TimedDispatch } from './profile.js';
import { ResultBuffers } from './results.js';
import { Temps } from './temps.js';
import { upload } from './upload.js';

const MAX_PLANS = 32; // sets of input shapes whose plans are kept

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

/** Where an output is wanted: in memory, in a new buffer, in the plan's buffer of every run, in a caller's, nowhere. */
export type Wanted = 'cpu' | 'gpu' | 'kept' | Given | undefined;

export interface Result {
  readonly dims: readonly number[];
  /** In memory, when it was wanted there. */
  readonly bytes?: ArrayBuffer;
  readonly buffer?: GPUBuffer;
}

export interface RunHooks {
  readonly profile?: ((dispatches: TimedDispatch[], layout: Layout) => void) | undefined;
}

interface Copy {
  readonly from: GPUBuffer;
  readonly to: GPUBuffer;
  readonly bytes: number;
}

export class Executable {
  readonly #layouts: Layouts;
  readonly #temps: Temps;
  readonly #plans = new Map<string, Promise<Plan>>();
  readonly #elements;
  readonly #ids = new WeakMap<GPUBuffer, number>();
  readonly #results: ResultBuffers;
  #nextId = 0;
  #made = 0;
  #released = false;

  private constructor(
    readonly program: Program,
    readonly gpu: Gpu,
    private readonly weights: readonly GPUBuffer[],
  ) {
    this.#layouts = new Layouts(program);
    this.#temps = new Temps(gpu);
    this.#results = new ResultBuffers(gpu);
    this.#elements = program.symbols.filter((it) => it.isElement);
  }

  /**
   * Uploads the weights. `progress` is told how many bytes of them are there; `known` are the values of all symbols, where runs
   * will have no others.
   */
  static async create(
    from: Package, gpu: Gpu, progress: (loaded: number) => void = () => undefined, known?: readonly Int[],
  ): Promise<Executable> {
    const { program } = from;
    for (const { name, bytes } of program.weights) {
      if (bytes <= gpu.limits.maxBufferSize) continue;
      throw new LimitError(
        `the weight '${name}' takes ${bytes} bytes, this device allows ${gpu.limits.maxBufferSize} (maxBufferSize)`,
      );
    }
    compileAhead(program, gpu, known);
    const weights: GPUBuffer[] = [];
    try {
      await gpu.guarded('the weights do not fit on the device', () => {
        for (const it of program.weights) weights.push(gpu.storage(it.bytes, `the weight '${it.name}'`));
      });
      await upload(from, gpu, weights, progress);
    } catch (error) {
      for (const buffer of weights) gpu.free(buffer);
      throw error;
    }
    return new Executable(program, gpu, weights);
  }

  // ---- plans

  /** The values of the program's symbols for these inputs; those in buffers are read back where they set a shape. */
  async #symbols(feeds: readonly Feed[]): Promise<Int[]> {
    const read = new Map<number, Uint8Array>();
    for (const { input } of this.#elements) {
      if (read.has(input)) continue;
      const { bytes, buffer, dims } = feeds[input]!;
      const size = Math.ceil((dims.reduce((a, b) => a * b, 1) * this.#dtype(input).bits) / 8);
      read.set(input, bytes ?? new Uint8Array(await this.gpu.read(buffer!, size)));
    }
    return this.program.symbols.map(({ input, index, isElement }) =>
      isElement ? element(read.get(input)!, this.#dtype(input).name, index) : feeds[input]!.dims[index]!,
    );
  }

  #extents(feeds: readonly Feed[]): Int[] {
    return this.program.symbols.map(({ input, index }) => feeds[input]!.dims[index]!);
  }

  #dtype(input: number): Program['values'][number]['dtype'] {
    return this.program.values[this.program.inputs[input]!]!.dtype;
  }

  /** The plan for these inputs, made when it is new. Raises InputError or LimitError. */
  async plan(feeds: readonly Feed[]): Promise<Plan> {
    // Nothing waits between here and the map, or runs that overlap would make a plan each.
    const symbols = this.#elements.length ? await this.#symbols(feeds) : this.#extents(feeds);
    const key = `${feeds.map((it) => it.dims.join()).join(';')}|${symbols.join()}`;
    let plan = this.#plans.get(key);
    if (plan) {
      this.#plans.delete(key);
    } else {
      plan = this.#make(feeds, symbols);
      plan.catch(() => this.#plans.delete(key));
    }
    this.#plans.set(key, plan); // the latest
    const made = await plan;
    this.#forget();
    return made;
  }

  async #make(feeds: readonly Feed[], symbols: readonly Int[]): Promise<Plan> {
    this.#checkShapes(feeds, symbols);
    const layout = this.#layouts.layout(symbols);
    this.#made += 1;
    const needed = pipelinesOf(this.program, this.gpu, layout);
    // Shapes change, so sooner or later every variant is wanted: later shapes then compile nothing. This one does not wait.
    if (this.#made === 2) compileUsable(this.program, this.gpu);
    const pipelines = await needed;
    this.#alive();
    return this.gpu.guarded(
      'the device cannot hold a run of this size',
      () => new Plan(this.program, this.gpu, layout, pipelines, this.#temps, this.weights),
    );
  }

  /** Lets go of the plans that were not used for longest, and of the buffers that only they used. */
  #forget(): void {
    if (this.#plans.size <= MAX_PLANS) return;
    const [key, oldest] = this.#plans.entries().next().value!;
    this.#plans.delete(key);
    void Promise.all([oldest, Promise.all(this.#plans.values())]).then(([gone, plans]) => {
      gone.release();
      if (!this.#released) this.#temps.keepOnly(new Set(plans.flatMap((it) => [...it.used])));
    }, () => undefined);
  }

  #checkShapes(feeds: readonly Feed[], symbols: readonly Int[]): void {
    const known = new Map(this.program.symbols.map((it, k) => [it.name, symbols[k]!]));
    feeds.forEach(({ dims }, k) => {
      const { name, shape } = this.program.values[this.program.inputs[k]!]!;
      shape.forEach((dim, axis) => {
        const wanted = evaluate(dim, known);
        if (dims[axis] === wanted) return;
        const said = typeof dim === 'object' ? ` (${dim.join(' ').replaceAll('$', '')})` : '';
        throw new InputError(
          `input '${name}' has ${dims[axis]} elements along axis ${axis}, the model wants ${wanted}${said}`,
        );
      });
    });
  }

  // ---- runs

  /** Runs once. `feeds` and `wanted` are in the program's order. */
  async run(feeds: readonly Feed[], wanted: readonly Wanted[], hooks: RunHooks = {}): Promise<Result[]> {
    this.#alive();
    let plan = await this.plan(feeds);
    while (plan.released) plan = await this.plan(feeds); // by many runs of other shapes in between
    this.#alive();
    const profiled = hooks.profile && Profiled.on(this.gpu, plan.steps.length);
    const taken: GPUBuffer[] = [];
    try {
      const started = this.#start(plan, feeds, wanted, profiled, taken);
      if (started.fresh) await started.fresh;
      if (profiled) hooks.profile!(await profiled.read(plan), plan.layout);
      return await started.finish();
    } catch (error) {
      for (const buffer of taken) this.gpu.free(buffer);
      throw error;
    } finally {
      profiled?.release();
    }
  }

  #alive(): void {
    if (this.#released) throw new InputError('the session is released: create it again');
    if (this.gpu.lost) throw this.gpu.lostError();
  }

  /** Writes, encodes and submits a run. `fresh` says later whether newly bound buffers were right; `taken` is told the buffers that
   * are nobody's when the run fails. */
  #start(plan: Plan, feeds: readonly Feed[], wanted: readonly Wanted[], profiled: Profiled | undefined, taken: GPUBuffer[]) {
    const { program, gpu } = this;
    this.#results.next();
    const { nbytes, shapes } = plan.layout;
    const callers = new Map<number, GPUBuffer>();
    const before: Copy[] = [];
    const after: Copy[] = [];
    const results = program.outputs.map((value, k) => {
      const place = wanted[k];
      if (typeof place === 'object') {
        this.#sameShape(value, place.dims, shapes[value]!);
        after.push(...this.#fit(plan, value, place.buffer, callers, true));
        return { value, place, buffer: place.buffer };
      }
      const buffer = place === 'gpu' ? this.#results.take(nbytes[value]!) : undefined;
      if (buffer) taken.push(buffer);
      callers.set(value, buffer ?? plan.own(value));
      return { value, place, buffer: place === 'kept' ? plan.own(value) : buffer };
    });
    const written = new Set(results.map((it) => it.buffer));
    // An input that lies where its output begins as it is not read by any dispatch.
    const updated = new Map(plan.layout.begins.map(([output, input]) => [input, callers.get(output)]));
    if (results.filter((it) => it.buffer).length > written.size - (written.has(undefined) ? 1 : 0)) {
      throw new InputError('two outputs are to go into one buffer: give each a buffer of its own');
    }
    program.inputs.forEach((value, k) => {
      const { bytes, buffer } = feeds[k]!;
      if (!buffer) {
        const own = plan.own(value);
        if (bytes!.length) gpu.write(own, 0, bytes!);
        callers.set(value, own);
      } else if (buffer === updated.get(value)) callers.set(value, buffer);
      else before.push(...this.#fit(plan, value, buffer, callers, false, written.has(buffer)));
    });
    for (const [output, input] of plan.layout.begins) {
      const [from, to] = [callers.get(input)!, callers.get(output)!];
      if (from !== to) before.push({ from, to, bytes: Math.ceil(nbytes[output]! / 4) * 4 });
    }
    const key = [...callers.values()].map((it) => this.#id(it)).join();
    const total = results.reduce((sum, it) => sum + (it.place === 'cpu' ? bindingBytes(nbytes[it.value]!) : 0), 0);
    const staging = total ? this.#results.stage(total) : undefined;
    if (staging) taken.push(staging);
    const submit = (groups: Groups): void => {
      const encoder = gpu.device.createCommandEncoder();
      for (const it of before) encoder.copyBufferToBuffer(it.from, 0, it.to, 0, it.bytes);
      if (profiled) profiled.encode(encoder, plan.steps, groups);
      else encode(encoder, plan, groups);
      for (const it of after) encoder.copyBufferToBuffer(it.from, 0, it.to, 0, it.bytes);
      let offset = 0;
      for (const { value, place } of results) {
        if (place !== 'cpu') continue;
        const size = bindingBytes(nbytes[value]!);
        encoder.copyBufferToBuffer(callers.get(value)!, 0, staging!, offset, size);
        offset += size;
      }
      gpu.device.queue.submit([encoder.finish()]);
    };
    const groups = plan.bound(key);
    let fresh: Promise<void> | undefined;
    if (groups) submit(groups);
    else {
      const bind = (): Groups => {
        const made = plan.bind(callers);
        submit(made);
        return made;
      };
      fresh = gpu.guarded('the run is refused by the device', bind).then((made) => plan.keep(key, made));
    }
    const finish = async (): Promise<Result[]> => {
      if (staging) await gpu.map(staging);
      let offset = 0;
      const found = results.map(({ value, place, buffer }): Result => {
        const dims = shapes[value]!;
        if (place !== 'cpu') return buffer ? { dims, buffer } : { dims };
        const from = offset;
        offset += bindingBytes(nbytes[value]!);
        const size = Math.ceil(nbytes[value]! / 4) * 4;
        return { dims, bytes: size ? staging!.getMappedRange(from, size).slice(0, nbytes[value]) : new ArrayBuffer(0) };
      });
      if (staging) this.#results.unstage(staging);
      return found;
    };
    return { fresh, finish };
  }

  #sameShape(value: number, given: readonly number[], shape: readonly number[]): void {
    if (given.join() === shape.join()) return;
    throw new InputError(
      `output '${this.program.values[value]!.name}' has shape [${shape.join(', ')}], the tensor passed for it has [${given.join(', ')}]`,
    );
  }

  /** Puts a caller's buffer in its place, or where it cannot be bound there a copy; gives the copies that this takes. */
  #fit(
    plan: Plan, value: number, buffer: GPUBuffer, callers: Map<number, GPUBuffer>, output: boolean, shared = false,
  ): Copy[] {
    const bytes = plan.layout.nbytes[value]!;
    const { name } = this.program.values[value]!;
    const copied = Math.ceil(bytes / 4) * 4;
    if (!(buffer.size >= copied)) {
      throw new InputError(
        `the tensor '${name}' takes ${bytes} bytes, its buffer has ${buffer.size}: pass one of at least ${copied} bytes`,
      );
    }
    // WebGPU lets no dispatch read and write one buffer, and kernels load 16 bytes at once.
    if (!shared && buffer.size >= bindingBytes(bytes)) {
      callers.set(value, buffer);
      return [];
    }
    const own = plan.own(value);
    callers.set(value, own);
    if (!copied) return [];
    return [output ? { from: own, to: buffer, bytes: copied } : { from: buffer, to: own, bytes: copied }];
  }

  #id(buffer: GPUBuffer): number {
    let id = this.#ids.get(buffer);
    if (id === undefined) this.#ids.set(buffer, (id = this.#nextId++));
    return id;
  }

  /** Takes back a buffer of a result that nobody uses any more. */
  recycle(buffer: GPUBuffer): void {
    this.#results.recycle(buffer);
  }

  /** Frees everything but results that are not disposed of. */
  async release(): Promise<void> {
    if (this.#released) return;
    this.#released = true;
    for (const plan of await Promise.allSettled(this.#plans.values())) {
      if (plan.status === 'fulfilled') plan.value.release();
    }
    this.#plans.clear();
    this.#temps.keepOnly(new Set());
    for (const buffer of this.weights) this.gpu.free(buffer);
    this.#results.release();
  }
}

/** Begins to compile what runs will need, while the weights arrive. Nobody waits: who needs a pipeline hears of its error. */
function compileAhead(program: Program, gpu: Gpu, known: readonly Int[] | undefined): void {
  if (known) {
    try {
      void pipelinesOf(program, gpu, new Layouts(program).layout(known)).catch(() => undefined);
    } catch {
      // Sizes that the model does not take: its plan says so.
    }
    return;
  }
  for (const kernel of program.kernels) {
    const last = kernel.wgsl.length - 1;
    // Kernels of one variant are needed for any shape; on a software adapter the last of several serves nearly all shapes.
    if (last === 0 || program.target.software) void gpu.pipeline(kernel, last).catch(() => undefined);
  }
}

/** Begins to compile all that some shape may take: what stands behind a guard that always holds, or never, is not. */
function compileUsable(program: Program, gpu: Gpu): void {
  for (const { kernel, guards } of program.dispatches) {
    const last = guards.findIndex((it) => typeof it !== 'object' && it);
    guards.forEach((guard, variant) => {
      if (guard && (last < 0 || variant <= last)) void gpu.pipeline(program.kernels[kernel]!, variant).catch(() => undefined);
    });
  }
}

function encode(encoder: GPUCommandEncoder, plan: Plan, groups: Groups): void {
  const pass = encoder.beginComputePass();
  let last: GPUComputePipeline | undefined;
  const { steps } = plan;
  for (let k = 0; k < steps.length; k++) {
    const { pipeline, grid } = steps[k]!;
    if (pipeline !== last) pass.setPipeline((last = pipeline));
    pass.setBindGroup(0, groups[k]!);
    pass.dispatchWorkgroups(grid[0], grid[1], grid[2]);
  }
  pass.end();
}
