// A Program on a device, with its weights. In: tensors in memory or in buffers. Out: the same. Invariant: a run is written,
// encoded and submitted without other work of this thread in between.

import { type Bound, type Feed, type Given, type Place, type Result, Runs } from './bound.js';
import type { Gpu } from './device.js';
import { element } from './elements.js';
import { InputError, LimitError } from './errors.js';
import { type Layout, Layouts } from './layout.js';
import type { Package } from './package.js';
import { Plan, type Variant, nameOf, pipelinesOf, variantsOf } from './plan.js';
import { defined, evaluate, type Int, mentioned, needed } from './postfix.js';
import { type Program, type Value, valueBytes } from './program.js';
import type { OnProfile, Profiled } from './profile.js';
import { ResultBuffers } from './results.js';
import { Temps } from './temps.js';
import { upload } from './upload.js';

const SLICE = 4; // milliseconds for which the thread may be blocked
const MAX_PLANS = 32; // sets of input shapes with kept plans

/** The destination of an output: a `Place`, or a new buffer. */
export type Wanted = Place | 'gpu';

/** The interface of a model's runner for a session. */
export type Runner = Pick<Executable, 'program' | 'gpu' | 'run' | 'recycle' | 'release'> & { plan(feeds: readonly Feed[]): Promise<unknown> };

export class Executable {
  readonly #layouts: Layouts;
  readonly #temps: Temps;
  /** By the shapes of inputs, least recently used first. Sizes that run the same kernels share a plan. */
  readonly #plans = new Map<string, Runs>();
  readonly #making = new Map<string, Promise<Runs>>();
  readonly #elements;
  /** The buffers of results. */
  readonly results: ResultBuffers;
  /** The Runs of the last run. */
  #last: Runs | undefined;
  #made = 0;
  /** Loaded for the second set of shapes. */
  #grow: typeof import('./grow.js') | undefined;
  /** The states, which runs leave to later runs, by name. */
  readonly #states: Map<string, GPUBuffer>;
  #released = false;

  private constructor(
    readonly program: Program,
    readonly gpu: Gpu,
    private readonly weights: readonly GPUBuffer[],
    /** Another Executable, which shares its memory with this one. */
    first?: Executable,
  ) {
    this.#layouts = new Layouts(program);
    this.#temps = first ? first.#temps : new Temps(gpu);
    this.results = first ? first.results : new ResultBuffers(gpu);
    this.#elements = program.symbols.filter((it) => it.isElement);
    this.#states = first ? first.#states : new Map<string, GPUBuffer>();
    for (const it of program.values) {
      if (it.storage === 'STATE' && !this.#states.has(it.name)) this.#states.set(it.name, begun(gpu, it));
    }
  }

  /**
   * Uploads the weights. `progress` receives the number of bytes uploaded so far. `known` has the values of all symbols, if
   * runs will have no others.
   */
  static async create(
    from: Package, gpu: Gpu, progress: (loaded: number) => void = () => undefined, known?: readonly Int[], signal?: AbortSignal,
  ): Promise<Executable> {
    const { program } = from;
    for (const { name, bytes } of program.weights) {
      if (bytes <= gpu.limits.maxBufferSize) continue;
      throw new LimitError(
        `the weight '${name}' takes ${bytes} bytes, this device allows ${gpu.limits.maxBufferSize} (maxBufferSize)`,
      );
    }
    // First, so that other threads compile while this one creates buffers and writes weights.
    void compileAhead(program, gpu, known);
    const weights: GPUBuffer[] = [];
    const moving = program.weights.some((it) => it.matrices) && import('./transposed.js');
    const uploaded = (into: readonly GPUBuffer[]): Promise<void> => upload(from, gpu, into, progress, signal);
    try {
      await gpu.guarded('the weights do not fit on the device', () => {
        for (const it of program.weights) weights.push(gpu.storage(it.bytes, `the weight '${it.name}'`));
      });
      const later = await moving;
      await (later ? later.transposed(gpu, program.weights, weights, uploaded) : uploaded(weights));
    } catch (error) {
      from.cancel();
      for (const buffer of weights) gpu.free(buffer);
      throw error;
    }
    return new Executable(program, gpu, weights);
  }

  /** Returns an Executable of another program, with this one's memory and these of its weights. */
  with(program: Program, weights: readonly number[]): Executable {
    return new Executable(program, this.gpu, weights.map((k) => this.weights[k]!), this);
  }

  /** Returns the layout of runs with these inputs. Raises InputError or LimitError. */
  async layout(feeds: readonly Feed[]): Promise<Layout> {
    return this.#layout(feeds, await this.#symbols(feeds));
  }

  #layout(feeds: readonly Feed[], symbols: readonly Int[]): Layout {
    this.#checkShapes(feeds, symbols);
    return this.#layouts.layout(symbols);
  }

  // ---- plans

  /** Returns the values of the program's symbols for these inputs. Inputs in buffers are read back if they set a shape. */
  async #symbols(feeds: readonly Feed[]): Promise<Int[]> {
    const read = new Map<number, Uint8Array>();
    for (const { input } of this.#elements) {
      if (read.has(input)) continue;
      const { bytes, buffer, dims } = feeds[input]!;
      read.set(input, bytes ?? new Uint8Array(await this.gpu.read(buffer!, valueBytes(this.#input(input), dims))));
    }
    return this.#known(feeds, read);
  }

  /** The same, with the bytes of those inputs; without them if only shapes matter. */
  #known(feeds: readonly Feed[], read?: ReadonlyMap<number, Uint8Array>): Int[] {
    return this.program.symbols.map(({ input, index, isElement }) =>
      isElement ? element(read!.get(input)!, this.#input(input), index) : feeds[input]!.dims[index]!,
    );
  }

  #input(input: number): Value {
    return this.program.values[this.program.inputs[input]!]!;
  }

  /** Returns the plan for these inputs. Makes it if it is new. Raises InputError or LimitError. */
  async plan(feeds: readonly Feed[]): Promise<Runs> {
    // No await between here and the maps. Otherwise overlapping runs would each make a plan.
    const symbols = this.#elements.length ? await this.#symbols(feeds) : this.#known(feeds);
    const key = `${feeds.map((it) => it.dims.join()).join(';')}|${symbols.join()}`;
    const made = this.#plans.get(key);
    if (made) {
      this.#touch(made);
      return made;
    }
    let making = this.#making.get(key);
    if (!making) {
      this.#making.set(key, (making = this.#make(key, feeds, symbols)));
      const done = (): unknown => this.#making.delete(key);
      making.then(done, done);
    }
    return making;
  }

  async #make(key: string, feeds: readonly Feed[], symbols: readonly Int[]): Promise<Runs> {
    const layout = this.#layout(feeds, symbols);
    this.#made += 1;
    const grow = this.#grow;
    const like = grow && [...this.#plans.values()].findLast(({ plan }) => grow.isLike(plan, layout))?.plan;
    const { compiled } = this.gpu;
    const pipelines = like ? like.steps.map((it) => it.pipeline) : pipelinesOf(this.program, this.gpu, layout);
    const fresh = this.gpu.compiled > compiled;
    if (this.#made === 2) await this.#growing();
    this.#grow?.follow(this, this.program, this.gpu, symbols, fresh, [mentioned, needed, defined, evaluate], () => !this.#released && !this.gpu.lost);
    const plan = like && grow.hasRoom(like, layout) ? like : await this.#planFor(layout, await pipelines, like);
    const kept = (value: number): GPUBuffer => this.results.keep(`${key}|${value}`, layout.nbytes[value]!, nameOf(this.program, layout, value));
    const runs = new Runs(plan, layout, like?.layout.nbytes ?? [], key, kept, feeds);
    this.#touch(runs);
    this.#forget();
    return runs;
  }

  /** Called for the second set of shapes. Later shapes then compile ahead, and planning them is cheap. */
  async #growing(): Promise<void> {
    const grow = (this.#grow = await import('./grow.js').catch(() => undefined)); // without it every shape has a plan of its own
    this.#layouts.parts = grow?.partsOf;
  }

  /** Makes a plan. It replaces a similar one without enough room. */
  async #planFor(layout: Layout, pipelines: readonly GPUComputePipeline[], like: Plan | undefined): Promise<Plan> {
    const { program, gpu } = this;
    this.#alive();
    const made: Plan[] = []; // one, if there is memory for it
    try {
      await gpu.guarded('the device cannot hold a run of this size', () => {
        made.push(new Plan(program, gpu, layout, pipelines, this.#temps, this.weights, this.#states, like?.layout));
      });
    } catch (error) {
      for (const it of made) it.release();
      throw error;
    }
    for (const it of [...this.#plans.values()]) if (it.plan === like) this.#drop(it);
    return made[0]!;
  }

  /** Marks a plan as the most recently used. */
  #touch(runs: Runs): void {
    this.#plans.delete(runs.key);
    this.#plans.set(runs.key, runs);
  }

  /** Evicts the least recently used plans, except that of the last run. */
  #forget(): void {
    for (const runs of this.#plans.values()) {
      if (this.#plans.size <= MAX_PLANS) return;
      if (runs !== this.#last) this.#drop(runs);
    }
  }

  #drop({ key, plan }: Runs): void {
    this.#plans.delete(key);
    if (![...this.#plans.values()].some((it) => it.plan === plan)) plan.release();
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
          `input '${name}' has ${dims[axis]} elements along axis ${axis}, the model needs ${wanted}${said}`,
        );
      });
    });
  }

  // ---- runs

  /**
   * Runs once. `feeds` and `wanted` are in the program's order. Returns the results synchronously if there is nothing to wait
   * for.
   */
  run(feeds: readonly Feed[], wanted: readonly Wanted[], tell?: OnProfile): readonly Result[] | Promise<readonly Result[]> {
    this.results.next();
    return this.part(feeds, wanted, tell);
  }

  /** The same, as a part of a run. */
  part(feeds: readonly Feed[], wanted: readonly Wanted[], tell?: OnProfile): readonly Result[] | Promise<readonly Result[]> {
    this.#alive();
    const last = this.#last;
    // If only shapes determine the plan.
    const same = !this.#elements.length && last?.takes(feeds);
    return same ? this.#start(last!, feeds, wanted, tell) : this.#planned(feeds, wanted, tell);
  }

  async #planned(given: readonly Feed[], wanted: readonly Wanted[], tell?: OnProfile): Promise<readonly Result[]> {
    const feeds = given.map((it) => ({ ...it, dims: [...it.dims] })); // callers may change theirs during the wait
    let runs = await this.plan(feeds);
    while (runs.plan.released) runs = await this.plan(feeds); // by many runs of other shapes in between
    this.#alive();
    const last = this.#last;
    if (last && !last.plan.released) this.#touch(last); // runs with the same shapes did not
    this.#touch(runs);
    this.#last = runs;
    return this.#start(runs, feeds, wanted, tell);
  }

  #alive(): void {
    if (this.#released) throw new InputError('the session is released: create it again');
    if (this.gpu.lost) throw this.gpu.lostError();
  }

  /** Writes, encodes and submits a run. */
  #start(runs: Runs, feeds: readonly Feed[], wanted: readonly Wanted[], tell?: OnProfile): readonly Result[] | Promise<readonly Result[]> {
    const { plan, layout } = runs;
    const taken: GPUBuffer[] = []; // buffers without an owner if the run fails
    let profiled: Profiled | undefined;
    try {
      plan.use(layout);
      const places = wanted.includes('gpu') ? wanted.map((it, k) => (it === 'gpu' ? this.#take(runs, k, taken) : it)) : wanted;
      const bound = runs.find(feeds, places as Place[]);
      const staging = bound.bytes ? this.results.stage(bound.bytes) : undefined;
      if (staging) taken.push(staging);
      profiled = tell?.on(this.gpu, plan.steps.length);
      let sure: Promise<void> | undefined;
      // A run that waits for results also reports callers' buffers that were destroyed after they were bound.
      const submit = (): void => bound.submit(feeds, staging, profiled);
      if (bound.sure && !(staging && bound.foreign)) {
        submit();
        runs.keep(bound);
        if (!staging && !profiled) return bound.results;
      } else sure = this.gpu.guarded('the run is refused by the device', submit).then(() => runs.keep(bound));
      return this.#finish(bound, staging, profiled, tell, sure, taken);
    } catch (error) {
      this.#failed(taken, profiled);
      throw error;
    }
  }

  #take({ layout, before }: Runs, output: number, taken: GPUBuffer[]): Given {
    const { program } = this;
    const value = program.outputs[output]!;
    const [dims, nbytes] = [layout.shapes[value]!, layout.nbytes[value]!];
    if (!nbytes) return { buffer: this.results.empty(program.values[value]!.name), dims };
    const buffer = this.results.take(nbytes, nameOf(program, layout, value), before[value]! < nbytes);
    taken.push(buffer);
    return { buffer, dims };
  }

  /** Waits for the end of a run. `sure` settles when the device has accepted or refused it. */
  async #finish(
    bound: Bound, staging: GPUBuffer | undefined, profiled: Profiled | undefined, tell: OnProfile | undefined,
    sure: Promise<void> | undefined, taken: readonly GPUBuffer[],
  ): Promise<readonly Result[]> {
    const mapped = staging && this.gpu.map(staging);
    mapped?.catch(() => undefined); // reported below, if the run itself was accepted
    try {
      if (sure) await sure;
      if (profiled) tell!.tell(await profiled.read(bound.layout), bound.layout);
      if (!staging) return bound.results;
      await mapped;
      const results = bound.read(staging);
      this.results.unstage(staging);
      return results;
    } catch (error) {
      this.#failed(taken, profiled);
      throw error;
    }
  }

  #failed(taken: readonly GPUBuffer[], profiled: Profiled | undefined): void {
    for (const buffer of taken) this.gpu.free(buffer);
    profiled?.release();
  }

  /** Returns the buffer of an unused result. */
  recycle(buffer: GPUBuffer): void {
    this.results.recycle(buffer);
  }

  /** Frees everything except results that are not disposed of. */
  async release(): Promise<void> {
    if (this.#released) return;
    this.#released = true;
    await Promise.allSettled(this.#making.values());
    for (const { plan } of this.#plans.values()) plan.release();
    this.#plans.clear();
    for (const buffer of [...this.weights, ...this.#states.values()]) this.gpu.free(buffer);
    this.results.release();
  }
}

/**
 * Starts to compile what runs will need while the weights arrive. Nothing waits for it. A run that needs a pipeline gets its
 * error. If compiling blocks the thread, as in Node, it yields so that weights can be processed.
 */
export async function compileAhead(program: Program, gpu: Gpu, known: readonly Int[] | undefined): Promise<void> {
  let begun = performance.now();
  for (const it of wantedAhead(program, known)) {
    void gpu.pipeline(...it).catch(() => undefined);
    if (performance.now() - begun < SLICE) continue;
    await new Promise((done) => setTimeout(done));
    begun = performance.now();
  }
}

function wantedAhead(program: Program, known: readonly Int[] | undefined): Variant[] {
  try {
    if (known) return variantsOf(program, new Layouts(program).layout(known));
  } catch {
    return []; // sizes that the model does not accept; planning reports the error
  }
  return program.kernels.flatMap((kernel): Variant[] => {
    const last = kernel.wgsl.length - 1;
    // Kernels with one variant are needed for any shape. On a software adapter the last of several serves nearly all shapes.
    return last === 0 || program.target.software ? [[kernel, last]] : [];
  });
}

/** Creates a buffer with the initial numbers of a state. */
function begun(gpu: Gpu, { name, elements }: Value): GPUBuffer {
  const words = elements.length ? Uint32Array.from(elements, Number) : crypto.getRandomValues(new Uint32Array(4));
  const buffer = gpu.storage(words.byteLength, name);
  gpu.write(buffer, 0, new Uint8Array(words.buffer));
  return buffer;
}
