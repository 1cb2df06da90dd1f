// One InferenceSession: onnxruntime-common's tensors in and out of an Executable, on a device that may be lost and requested
// again.

import { type InferenceSession, type InferenceSessionHandler, type OnnxValue, Tensor, env } from 'onnxruntime-common';
import type { Feed, Result } from './bound.js';
import { Gpu, MATRICES, sharedGpu } from './device.js';
import { type DType, nbytes, typedArray } from './dtypes.js';
import * as errors from './errors.js';
import { DeviceError, InputError, OptionError } from './errors.js';
import { Executable, type Runner, type Wanted, compileAhead } from './executable.js';
import { isProfiling } from './flags.js';
import { liesInMemory, unreachable } from './locations.js';
import { checkAgainst, type Options, readOptions, staysOnGpu } from './options.js';
import { type Capabilities, openPackage } from './package.js';
import type { Postfix } from './postfix.js';
import { type Program, type Value, valueBytes } from './program.js';

type Tensors = Readonly<Record<string, OnnxValue | null>>;

/** Loads the code that measures runs. */
export const measuring = (): Promise<typeof import('./profile.js')> => import('./profile.js');

export class Session implements InferenceSessionHandler {
  readonly inputNames: readonly string[];
  readonly outputNames: readonly string[];
  readonly inputMetadata: readonly InferenceSession.ValueMetadata[];
  readonly outputMetadata: readonly InferenceSession.ValueMetadata[];
  readonly inputs: readonly Value[];
  readonly outputs: readonly Value[];
  readonly #onGpu: readonly boolean[];
  readonly #names: ReadonlySet<string>;
  readonly operators: ReadonlySet<string>;
  /** A promise while it is loaded again. */
  #live: Runner | Promise<Runner>;
  #released = false;
  #profiling: boolean;

  private constructor(
    private readonly source: string | Uint8Array,
    private readonly options: Options,
    executable: Runner,
  ) {
    const { program } = executable;
    this.#live = executable;
    this.inputs = program.inputs.map((it) => program.values[it]!);
    this.outputs = program.outputs.map((it) => program.values[it]!);
    this.inputNames = this.inputs.map((it) => it.name);
    this.#names = new Set(this.inputNames);
    this.outputNames = this.outputs.map((it) => it.name);
    checkAgainst(program, options, this.outputNames);
    for (const it of this.inputs) tensorType(it, 'begin');
    this.#onGpu = this.outputs.map((it) => staysOnGpu(options, it.name, it.dtype));
    this.inputMetadata = this.inputs.map((it) => metadata(it, options));
    this.outputMetadata = this.outputs.map((it) => metadata(it, options));
    this.operators = new Set(program.dispatches.flatMap((it) => it.operators));
    this.#profiling = options.profiling;
  }

  static async create(source: string | Uint8Array, given: InferenceSession.SessionOptions = {}): Promise<Session> {
    const options = await readOptions(given);
    const { signal } = options;
    signal?.throwIfAborted();
    const executable = await load(source, options, signal);
    try {
      const session = new Session(source, options, executable);
      if (knownSymbols(executable.program, options)) {
        await executable.plan(session.inputMetadata.map((it) => ({ dims: it.isTensor ? (it.shape as number[]) : [] })));
      }
      signal?.throwIfAborted();
      return session;
    } catch (error) {
      await executable.release();
      throw error;
    }
  }

  /** Returns the runner on a device that is not lost, synchronously if there is one. */
  executable(): Runner | Promise<Runner> {
    if (this.#released) throw new InputError('the session is released: create it again');
    const live = this.#live;
    return live instanceof Promise || live.gpu.lost ? this.#again() : live;
  }

  async #again(): Promise<Runner> {
    const asked = this.#live;
    const live = await asked;
    if (!live.gpu.lost || this.#released) return live;
    if (this.options.device) {
      throw new DeviceError(`the device that this session was given is lost (${live.gpu.lost}): create a session on another`);
    }
    if (this.#live === asked || this.#live === live) {
      void live.release();
      const made = load(this.source, this.options);
      this.#live = made;
      // After a failure the next run tries again.
      made.then((it) => (this.#live = it), () => (this.#live = asked));
    }
    return this.#live;
  }

  // ---- runs

  async run(feeds: Tensors, fetches: Tensors): Promise<Record<string, Tensor>> {
    const given = this.inputs.map((value) => this.feed(value, feeds[value.name] as Tensor | undefined));
    this.checkNames(feeds);
    this.checkOverrides(given);
    const wanted = this.outputs.map((value, k) => this.#wanted(value, k, fetches));
    const found = this.executable();
    const executable = found instanceof Promise ? await found : found;
    const measured = isProfiling(env.webgpu) || this.#profiling;
    const tell = measured ? (await measuring()).profiling(executable.program, given, env.webgpu) : undefined;
    const run = executable.run(given, wanted, tell);
    const results = run instanceof Promise ? await run : run;
    const out: Record<string, Tensor> = {};
    for (let k = 0; k < results.length; k++) {
      const value = this.outputs[k]!;
      if (value.name in fetches) out[value.name] = this.#result(executable, value, results[k]!, wanted[k], fetches[value.name] as Tensor | null);
    }
    return out;
  }

  checkNames(inputs: object): void {
    for (const name of Object.keys(inputs)) {
      if (!this.#names.has(name)) throw new InputError(`there is no input '${name}'; the inputs are ${this.inputNames.join(', ')}`);
    }
  }

  feed({ name, dtype, shape }: Value, tensor: Tensor | undefined): Feed {
    // A tensor may be of another copy of onnxruntime-common.
    if (!tensor?.location || !Array.isArray(tensor.dims)) {
      throw new InputError(`input '${name}' is not a tensor: pass new Tensor('${dtype.tensor}', data, dims)`);
    }
    if (tensor.type !== dtype.tensor) {
      const carried = dtype.tensor === dtype.name ? '' : `, as the bits of ${dtype.tensor}`;
      throw new InputError(`input '${name}' is ${tensor.type}, the model needs ${dtype.name}${carried}`);
    }
    const { dims } = tensor;
    if (dims.length !== shape.length) {
      throw new InputError(`input '${name}' has rank ${dims.length} [${dims.join(', ')}], the model needs rank ${shape.length}`);
    }
    if (tensor.location === 'gpu-buffer') return { dims, buffer: tensor.gpuBuffer as GPUBuffer };
    if (!liesInMemory(tensor)) throw unreachable(`input '${name}'`, tensor.location);
    if (dtype.name === 'string') return { dims, bytes: new Uint8Array() }; // unused
    const { buffer, byteOffset, byteLength } = tensor.data as Exclude<Tensor['data'], string[]>;
    if (byteLength !== nbytes(dtype, tensor.size)) {
      throw new InputError(
        `input '${name}' has ${byteLength} bytes, ${tensor.size} elements of ${dtype.name} take ${nbytes(dtype, tensor.size)}: ` +
          (dtype.bits < 8 ? 'two share a byte, the first in its low half' : 'was its memory transferred elsewhere?'),
      );
    }
    return { dims, bytes: new Uint8Array(buffer as ArrayBuffer, byteOffset, byteLength) };
  }

  checkOverrides(feeds: readonly Feed[]): void {
    for (const [k, it] of this.inputMetadata.entries()) {
      if (!it.isTensor) continue;
      for (let axis = 0; axis < it.shape.length; axis++) {
        const [extent, found] = [it.shape[axis], feeds[k]!.dims[axis]];
        if (typeof extent === 'number' && extent !== found) {
          throw new InputError(`input '${it.name}' has ${found} elements along axis ${axis}, the model needs ${extent}`);
        }
      }
    }
  }

  #wanted({ name, dtype }: Value, k: number, fetches: Tensors): Wanted {
    if (!(name in fetches)) return undefined;
    const given = fetches[name] as Tensor | null;
    if (!given) return !this.#onGpu[k] ? 'cpu' : this.options.capture ? 'kept' : 'gpu';
    if (given.type !== dtype.tensor) throw new InputError(`output '${name}' is ${dtype.name}, the tensor passed for it ${given.type}`);
    if (given.location === 'gpu-buffer') return { buffer: given.gpuBuffer as GPUBuffer, dims: given.dims };
    if (liesInMemory(given)) return 'cpu';
    throw unreachable(`the tensor passed for output '${name}'`, given.location);
  }

  #result(executable: Runner, value: Value, result: Result, wanted: Wanted, given: Tensor | null): Tensor {
    const { name, dtype } = value;
    const { bytes, buffer } = result;
    const dims = [...result.dims]; // for the caller
    if (given && !bytes) return given;
    if (bytes) {
      const data = typedArray(dtype, bytes);
      if (!given) return new Tensor(tensorType(value), data as never, dims);
      if (given.dims.join() !== dims.join()) {
        throw new InputError(`output '${name}' has shape [${dims.join(', ')}], the tensor passed for it has [${given.dims.join(', ')}]`);
      }
      (given.data as Uint8Array).set(data as Uint8Array);
      return given;
    }
    const size = valueBytes(value, dims);
    return Tensor.fromGpuBuffer(buffer as never, {
      dataType: tensorType(value) as Tensor.GpuBufferDataTypes,
      dims,
      download: async () => typedArray(dtype, await executable.gpu.read(buffer!, size)) as never,
      // With graph capture the buffer is shared by all runs and released with the session.
      ...(wanted === 'gpu' && { dispose: () => executable.recycle(buffer!) }),
    });
  }

  // ---- generation

  /** Returns the buffer of a result to the pool. */
  recycle(buffer: GPUBuffer): void {
    void Promise.resolve(this.#live).then((it) => it.recycle(buffer));
  }

  /** Returns a tensor as a feed of a loop. */
  fed(name: string, tensor: Tensor): Feed {
    const value = this.inputs.find((it) => it.name === name);
    this.checkNames({ [name]: tensor });
    return this.feed(value!, tensor);
  }

  // ---- profiling

  startProfiling(): void {
    this.#profiling = true;
  }

  endProfiling(): void {
    this.#profiling = false;
  }

  async dispose(): Promise<void> {
    if (this.#released) return;
    this.#released = true;
    await (await this.#live).release();
  }
}

async function load(source: string | Uint8Array, options: Options, signal?: AbortSignal): Promise<Runner> {
  const asked = Promise.resolve(options.device ? Gpu.of(options.device) : sharedGpu());
  const able = asked.then((gpu): Capabilities => ({
    ...gpu,
    matrices: gpu.features.has(MATRICES) ? (begun) => import('./matrices.js').then((it) => it.unitsOf(gpu, begun)) : undefined,
    ahead: (program) => compileAhead(program, gpu, knownSymbols(program, options)),
  }));
  const opening = openPackage(source, able, { signal });
  for (const it of [able, opening]) it.catch(() => undefined); // reported below
  // A missing device is reported at once, whatever the model is.
  const gpu = await asked;
  const found = await opening;
  const { onProgress } = options;
  const progress = onProgress && ((loaded: number) => onProgress({ loaded, total: found.total }));
  if (found.program.header?.['parts']) return (await import('./flow/flow.js')).opened(Executable, errors, found, gpu, progress, signal);
  return Executable.create(found, gpu, progress, knownSymbols(found.program, options), signal);
}

/** Returns the values of all symbols if the shapes of all inputs are known. */
function knownSymbols({ symbols }: Program, { overrides }: Options): number[] | undefined {
  if (symbols.some((it) => it.isElement || !overrides.has(it.name))) return undefined;
  return symbols.map((it) => overrides.get(it.name)!);
}

/** Returns the tensor type of onnxruntime-common. Raises OptionError if it has none. */
function tensorType({ name, dtype }: { name: string; dtype: DType }, place = 'end'): Tensor.Type {
  if (dtype.tensor) return dtype.tensor;
  throw new OptionError(`'${name}' is ${dtype.name}, which onnxruntime-common has no tensors of: ${place} the model with a Cast`);
}

function metadata({ name, dtype, shape }: Value, { overrides }: Options): InferenceSession.ValueMetadata {
  const shown = (dim: Postfix): number | string => {
    if (typeof dim !== 'object') return Number(dim);
    const text = dim.join(' ').replaceAll('$', '');
    return overrides.get(text) ?? text;
  };
  return { name, isTensor: true, type: (dtype.tensor ?? dtype.name) as Tensor.Type, shape: shape.map(shown) };
}
