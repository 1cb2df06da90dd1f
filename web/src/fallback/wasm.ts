// A session of onnxruntime-web behind one of ours. In: an ONNX model, or the one beside an export. Out: a handler with our
// tensors; the tensors of the two libraries share memory. This is a separate file, so it receives the objects that must be the
// same everywhere.

import type { InferenceSession, InferenceSessionHandler, OnnxValue, Tensor, env } from 'onnxruntime-common';
import type * as errors from '../errors.js';
import { localPath } from '../files.js';
import { isWasm } from './names.js';
import { original } from './original.js';

/** A library with the interface of onnxruntime-common. */
export interface Library {
  readonly InferenceSession: typeof InferenceSession;
  readonly Tensor: typeof Tensor;
  readonly env: typeof env;
}
export type Ours = Pick<Library, 'Tensor' | 'env'> & { readonly errors: typeof errors };
type Tensors = Readonly<Record<string, OnnxValue | null>>;

const WHERE = "say where it is: executionProviders: ['webgpu', {name: 'wasm', model: 'model.onnx'}]";
const REMEDY = "with a bundler, `npm install onnxruntime-web` and call useWasm(() => import('onnxruntime-web/wasm')); " +
  "without one, copy the files of its dist/ and call useWasm('/ort/ort.wasm.bundle.min.mjs'), the address of that file";

/**
 * Opens the ONNX model of `source` in WebAssembly, or on onnxruntime-web's WebGPU if that is available. `reason` is why our
 * WebGPU backend does not run it. Raises OptionError if the model's place is unknown, and ProgramError.
 */
export async function open(
  ours: Ours, source: string | Uint8Array, options: InferenceSession.SessionOptions, from: unknown, reason?: Error,
): Promise<InferenceSessionHandler> {
  const { OptionError, ProgramError, messageOf } = ours.errors;
  const provider = options.executionProviders?.find(isWasm);
  const { model: given, ...wasm } = (typeof provider === 'object' ? provider : {}) as { name?: string; model?: unknown };
  if (given !== undefined && typeof given !== 'string' && !(given instanceof Uint8Array)) {
    throw new OptionError(`executionProviders: wasm.model is ${JSON.stringify(given)}, it takes an address or the bytes of an ONNX model`);
  }
  const plain = reason instanceof ours.errors.NotExportedError;
  const place = given ?? (plain ? source : await modelOf(ours, source));
  const elsewhere = given === undefined ? `; WebAssembly runs the ONNX model, ${WHERE}` : '';
  const model = await inMemory(ours, place);
  const library = await loaded(ours, from, reason);
  // A page sets the options of WebAssembly on the env that it imports.
  if (library.env !== ours.env) {
    Object.assign(library.env.wasm, ours.env.wasm);
    if (ours.env.logLevel) library.env.logLevel = ours.env.logLevel;
  }
  // In Node its file for bundlers cannot start threads: it would fetch itself at a `file:` URL.
  if (localPath('.') !== undefined) library.env.wasm.numThreads ??= 1;
  const shared = { ...options } as InferenceSession.SessionOptions;
  if (options.externalData) {
    shared.externalData = await Promise.all(options.externalData.map(async (it) => {
      const { path, data } = typeof it === 'string' ? { path: it, data: it } : it;
      return { path, data: typeof data === 'string' ? await inMemory(ours, data) : data };
    })) as typeof options.externalData;
  }
  // They concern GPUs.
  for (const name of ['preferredOutputLocation', 'enableGraphCapture'] as const) delete (shared as Record<string, unknown>)[name];
  const create = (executionProviders: InferenceSession.SessionOptions['executionProviders']): Promise<InferenceSession> =>
    library.InferenceSession.create(model as string, { ...shared, executionProviders: executionProviders! });
  // Its build with WebGPU. Other builds lack this backend.
  const onGpu = reason && !(reason instanceof ours.errors.DeviceError) && (await create(['webgpu']).catch(() => undefined));
  try {
    const session = onGpu || (await create([{ ...wasm, name: 'wasm' } as { name: 'wasm' }]));
    if (reason) tell(`this session runs ${onGpu ? "on onnxruntime-web's WebGPU" : 'in WebAssembly'}, because WebGPU cannot run it: ${reason.message}`);
    return new WasmSession(ours, library, session);
  } catch (error) {
    const what = typeof place === 'string' ? place : 'the model';
    throw new ProgramError(`${what} cannot be opened in WebAssembly: ${messageOf(error)}${elsewhere}`, { cause: error });
  }
}

/**
 * Returns the ONNX model of an export: `model.onnx` of `model.onnx.wgpu/` and of `model.wgpu`, or the one that an export's
 * bytes name.
 */
async function modelOf({ errors }: Ours, source: string | Uint8Array): Promise<string | Uint8Array> {
  if (typeof source === 'string') {
    // A path has no query.
    const [, path, rest] = localPath(source) === source ? ['', source, ''] : source.match(/^([^?#]*)(.*)$/s)!;
    const whole = path!.replace(/\/(manifest\.json)?$/, '').replace(/\.(onnx|ort)\.wgpu$/, '.$1').replace(/\.wgpu$/, '.onnx');
    return whole + rest;
  }
  if (!/^wgpu(pack|prog)$/.test(new TextDecoder().decode(source.subarray(0, 8)))) return source;
  const beside = await original(source);
  if (beside) return beside;
  throw new errors.OptionError(
    `these bytes are an export, which runs on WebGPU alone: WebAssembly runs the ONNX model, ${WHERE}`,
  );
}

/**
 * Returns a source for onnxruntime-web. It fetches addresses, but in Node it reads no paths and no `file:` URLs; these are
 * read here.
 */
async function inMemory({ errors }: Ours, place: string | Uint8Array): Promise<string | Uint8Array> {
  const local = typeof place === 'string' ? localPath(place) : undefined;
  if (local === undefined) return place;
  const found = await (await import('../disk.js')).onDisk(local);
  if (found.ok) return found.bytes();
  throw new errors.ProgramError(
    `${place} cannot be read: ${found.status}; WebAssembly runs the ONNX model, ${WHERE}`,
  );
}

/** Loads the library of `useWasm`: calls a function that imports it, or imports its address. */
async function loaded({ errors }: Ours, from: unknown, reason: Error | undefined): Promise<Library> {
  let module: Partial<Library> & { readonly default?: Library };
  try {
    module = await (typeof from === 'function' ? from() : import(addressOf(String(from))));
  } catch (error) {
    throw new errors.ProgramError(
      `${reason ? `WebGPU cannot run the model: ${reason.message}; and ` : ''}there is no WebAssembly to run the model in: ` +
        `${errors.messageOf(error)}; ${REMEDY}`,
      { cause: error },
    );
  }
  const library = [module, module?.default].find((it) => it?.InferenceSession) as Library | undefined;
  if (!library) throw new errors.OptionError("useWasm: this is not a module of onnxruntime-web, which has InferenceSession: give it () => import('onnxruntime-web/wasm')");
  return library;
}

/** Converts an address as in `create` for `import()`, which takes one without a dot for the name of a package. */
function addressOf(place: string): string {
  if (localPath(place) !== place) return new URL(place, globalThis.document?.baseURI ?? globalThis.location?.href).href;
  const { process } = globalThis as unknown as { process: { getBuiltinModule(name: 'node:url'): { pathToFileURL(path: string): URL } } };
  return process.getBuiltinModule('node:url').pathToFileURL(place).href;
}

/** Texts that were printed. Each is printed once, because a page makes many sessions. */
const told = new Set<string>();
function tell(text: string): void {
  if (!told.has(text)) console.warn(text);
  told.add(text);
}

class WasmSession implements InferenceSessionHandler {
  readonly inputNames;
  readonly outputNames;
  readonly inputMetadata;
  readonly outputMetadata;
  #released = false;

  constructor(
    private readonly ours: Ours,
    private readonly library: Library,
    private readonly session: InferenceSession,
  ) {
    ({ inputNames: this.inputNames, outputNames: this.outputNames } = session);
    ({ inputMetadata: this.inputMetadata, outputMetadata: this.outputMetadata } = session);
  }

  async run(feeds: Tensors, fetches: Tensors, options: InferenceSession.RunOptions): Promise<Record<string, Tensor>> {
    if (this.#released) throw new this.ours.errors.InputError('the session is released: create it again');
    const inputs: Record<string, Tensor> = {};
    for (const [name, it] of Object.entries(feeds) as [string, Tensor][]) {
      const data = it.location === 'cpu' ? it.data : await it.getData();
      inputs[name] = new this.library.Tensor(it.type, data as never, it.dims);
    }
    const results = await this.session.run(inputs, Object.keys(fetches), options);
    return Object.fromEntries(
      (Object.entries(results) as [string, Tensor][]).map(([name, it]) => [name, received(this.ours, name, it, fetches[name] as Tensor | null)]),
    );
  }

  startProfiling(): void {
    this.session.startProfiling();
  }

  endProfiling(): void {
    this.session.endProfiling();
  }

  async dispose(): Promise<void> {
    if (this.#released) return;
    this.#released = true;
    await this.session.release();
  }
}

function received(ours: Ours, name: string, { type, dims, data }: Tensor, given: Tensor | null): Tensor {
  if (!given) return new ours.Tensor(type, data as never, dims);
  const { InputError } = ours.errors;
  if (given.type !== type) throw new InputError(`output '${name}' is ${type}, the tensor passed for it ${given.type}`);
  if (given.dims.join() !== dims.join()) {
    throw new InputError(`output '${name}' has shape [${dims.join(', ')}], the tensor passed for it has [${given.dims.join(', ')}]`);
  }
  if (given.location !== 'cpu') throw new InputError(`the tensor passed for output '${name}' is at '${given.location}', WebAssembly writes memory`);
  (given.data as Uint8Array).set(data as Uint8Array);
  return given;
}
