// A Program on a device, with its weights there. In: tensors in memory or in buffers. Out: the same. Invariants: everything
// that a run needs is written, encoded and submitted without anything else of this thread in between.

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

const SLICE = 4; // milliseconds that the thread is kept
const MAX_PLANS = 32; // sets of input shapes whose plans are kept

/** Where an output is wanted: as a run puts it, or in a new buffer. */
export type Wanted = Place | 'gpu';

/** What a session needs of what runs its model. */
export type Runner = Pick<Executable, 'program' | 'gpu' | 'run' | 'recycle' | 'release'> & { plan(feeds: readonly Feed[]): Promise<unknown> };

export class Executable {
  readonly #layouts: Layouts;
  readonly #temps: Temps;
  /** By the shapes of inputs, first those that were not used for longest; sizes that run the same kernels share a plan. */
  readonly #plans = new Map<string, Runs>();
  readonly #making = new Map<string, Promise<Runs>>();
  readonly #elements;
  /** Buffers that results leave a run in. */
  readonly results: ResultBuffers;
  /** Those of the last run. */
  #last: Runs | undefined;
  #made = 0;
  /** What is fetched for the second of the shapes. */
  #grow: typeof import('./grow.js') | undefined;
  /** What runs leave to the next ones, by name. */
  readonly #states: Map<string, GPUBuffer>;
  #released = false;

  private constructor(
    readonly program: Program,
    readonly gpu: Gpu,
    private readonly weights: readonly GPUBuffer[],
    /** One whose memory it shares. */
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
   * Uploads the weights. `progress` gets how many bytes of them are there; `known` are the values of all symbols, where runs
   * will have no others.
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
    // First, so that other threads compile while this one makes buffers and writes weights.
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

  /** What runs another program, with this one's memory and these of its weights. */
  with(program: Program, weights: readonly number[]): Executable {
    return new Executable(program, this.gpu, weights.map((k) => this.weights[k]!), this);
  }

  /** What runs with these inputs are like. Raises InputError or LimitError. */
  async layout(feeds: readonly Feed[]): Promise<Layout> {
    return this.#layout(feeds, await this.#symbols(feeds));
  }

  #layout(feeds: readonly Feed[], symbols: readonly Int[]): Layout {
    this.#checkShapes(feeds, symbols);
    return this.#layouts.layout(symbols);
  }

  // ---- plans

  /** The values of the program's symbols for these inputs; those in buffers are read back where they set a shape. */
  async #symbols(feeds: readonly Feed[]): Promise<Int[]> {
    const read = new Map<number, Uint8Array>();
    for (const { input } of this.#elements) {
      if (read.has(input)) continue;
      const { bytes, buffer, dims } = feeds[input]!;
      read.set(input, bytes ?? new Uint8Array(await this.gpu.read(buffer!, valueBytes(this.#input(input), dims))));
    }
    return this.#known(feeds, read);
  }

  /** The same, with the bytes of those inputs; none where shapes alone say it. */
  #known(feeds: readonly Feed[], read?: ReadonlyMap<number, Uint8Array>): Int[] {
    return this.program.symbols.map(({ input, index, isElement }) =>
      isElement ? element(read!.get(input)!, this.#input(input), index) : feeds[input]!.dims[index]!,
    );
  }

  #input(input: number): Value {
    return this.program.values[this.program.inputs[input]!]!;
  }

  /** The plan for these inputs, made when it is new. Raises InputError or LimitError. */
  async plan(feeds: readonly Feed[]): Promise<Runs> {
    // Nothing waits between here and the maps, or runs that overlap would make a plan each.
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

  /** Shapes change, so later ones compile ahead and plan little. */
  async #growing(): Promise<void> {
    const grow = (this.#grow = await import('./grow.js').catch(() => undefined)); // without it every shape has a plan of its own
    this.#layouts.parts = grow?.partsOf;
  }

  /** A new plan, which takes the place of one that is like it but has no room. */
  async #planFor(layout: Layout, pipelines: readonly GPUComputePipeline[], like: Plan | undefined): Promise<Plan> {
    const { program, gpu } = this;
    this.#alive();
    const made: Plan[] = []; // one, when there is memory for it
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

  /** Makes one the latest. */
  #touch(runs: Runs): void {
    this.#plans.delete(runs.key);
    this.#plans.set(runs.key, runs);
  }

  /** Lets go of those that were not used for longest; that of the last run is in use. */
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
          `input '${name}' has ${dims[axis]} elements along axis ${axis}, the model wants ${wanted}${said}`,
        );
      });
    });
  }

  // ---- runs

  /** Runs once. `feeds` and `wanted` are in the program's order. The results are there at once where nothing is to be waited for. */
  run(feeds: readonly Feed[], wanted: readonly Wanted[], tell?: OnProfile): readonly Result[] | Promise<readonly Result[]> {
    this.results.next();
    return this.part(feeds, wanted, tell);
  }

  /** The same as a part of a run. */
  part(feeds: readonly Feed[], wanted: readonly Wanted[], tell?: OnProfile): readonly Result[] | Promise<readonly Result[]> {
    this.#alive();
    const last = this.#last;
    // Where shapes alone say what a run takes.
    const same = !this.#elements.length && last?.takes(feeds);
    return same ? this.#start(last!, feeds, wanted, tell) : this.#planned(feeds, wanted, tell);
  }

  async #planned(given: readonly Feed[], wanted: readonly Wanted[], tell?: OnProfile): Promise<readonly Result[]> {
    const feeds = given.map((it) => ({ ...it, dims: [...it.dims] })); // callers may change theirs while this waits
    let runs = await this.plan(feeds);
    while (runs.plan.released) runs = await this.plan(feeds); // by many runs of other shapes in between
    this.#alive();
    const last = this.#last;
    if (last && !last.plan.released) this.#touch(last); // which the runs of its shapes did not
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
    const taken: GPUBuffer[] = []; // buffers without an owner when the run fails
    let profiled: Profiled | undefined;
    try {
      plan.use(layout);
      const places = wanted.includes('gpu') ? wanted.map((it, k) => (it === 'gpu' ? this.#take(runs, k, taken) : it)) : wanted;
      const bound = runs.find(feeds, places as Place[]);
      const staging = bound.bytes ? this.results.stage(bound.bytes) : undefined;
      if (staging) taken.push(staging);
      profiled = tell?.on(this.gpu, plan.steps.length);
      let sure: Promise<void> | undefined;
      // A run that waits for results anyway reports callers' buffers that are destroyed since they were bound.
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

  /** What is to be waited for; `sure` says whether the device took the run. */
  async #finish(
    bound: Bound, staging: GPUBuffer | undefined, profiled: Profiled | undefined, tell: OnProfile | undefined,
    sure: Promise<void> | undefined, taken: readonly GPUBuffer[],
  ): Promise<readonly Result[]> {
    const mapped = staging && this.gpu.map(staging);
    mapped?.catch(() => undefined); // reported below, when the run itself was taken
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

  /** Takes back a buffer of a result that is not used any more. */
  recycle(buffer: GPUBuffer): void {
    this.results.recycle(buffer);
  }

  /** Frees everything but results that are not disposed of. */
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
 * Begins to compile what runs will need, while the weights arrive. Nothing waits: a run that needs a pipeline gets its error. Where
 * that keeps the thread, as in Node, weights have their turns.
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
    return []; // sizes that the model does not take: its plan says so
  }
  return program.kernels.flatMap((kernel): Variant[] => {
    const last = kernel.wgsl.length - 1;
    // Kernels of one variant are needed for any shape; on a software adapter the last of several serves nearly all shapes.
    return last === 0 || program.target.software ? [[kernel, last]] : [];
  });
}

/** A buffer with the numbers that a state begins with. */
function begun(gpu: Gpu, { name, elements }: Value): GPUBuffer {
  const words = elements.length ? Uint32Array.from(elements, Number) : crypto.getRandomValues(new Uint32Array(4));
  const buffer = gpu.storage(words.byteLength, name);
  gpu.write(buffer, 0, new Uint8Array(words.buffer));
  return buffer;
}
