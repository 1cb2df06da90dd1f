// The backend `webgpu` of onnxruntime-common in a worker, so that the page stays responsive. In: the same calls as for the
// package itself. Out: the same, with GPU tensors that only the worker can read.

import { InferenceSession, type InferenceSessionHandler, type OnnxValue, Tensor, env } from 'onnxruntime-common';
import { type Times, timed } from '../benchmark.js';
import { DeviceError, InputError, OptionError, messageOf } from '../errors.js';
import { liesInMemory, unreachable } from '../locations.js';
import { isProfiling, preferenceOf } from '../flags.js';
import { register } from '../fallback/backend.js';
import { type GenerateOptions, type Prompt, type Prompts, isBatch, readGenerateOptions } from '../generate/options.js';
import { type Step, Texts } from '../generate/texts.js';
import { handlerOf } from '../handler.js';
import type { WebGPUSupport } from '../index.js';
import type { MemoryUse } from '../memory.js';
import type { Progress } from '../provider.js';
import { type Answer, type Calls, type Created, type Environment, type Sent, inMemory, revived } from './protocol.js';

export * from 'onnxruntime-common';
export { type OnnxRuntimeWeb, useWasm } from '../fallback/backend.js';
export type { GenerateOptions, Prompt } from '../generate/options.js';
export type { Step } from '../generate/texts.js';
export { type Decoder, streamText } from '../generate/text.js';
export { DeviceError, InputError, LimitError, OptionError, ProgramError, WgpuError } from '../errors.js';

/** Stands for the buffer of a tensor in the worker: a number. */
class Remote {
  constructor(
    readonly connection: Connection,
    readonly held: number,
  ) {}
}

type Tell = (told: NonNullable<Answer['told']>) => void;
interface Pending {
  resolve(result: unknown): void;
  reject(error: Error): void;
  readonly tell: Tell | undefined;
}

/** Sends calls to a worker and receives the results. */
class Connection {
  readonly #pending = new Map<number, Pending>();
  #next = 0;
  #ended: Error | undefined;

  constructor(private readonly worker: Worker) {
    worker.onmessage = ({ data: { id, result, error, told } }: MessageEvent<Answer>) => {
      if (told?.profile) env.webgpu.profiling?.ondata?.(told.profile as never);
      const pending = this.#pending.get(id);
      if (!pending) return;
      if (told) {
        pending.tell?.(told);
        return;
      }
      this.#pending.delete(id);
      if (error) pending.reject(revived(error));
      else pending.resolve(result);
    };
    worker.onerror = (event) => this.end(`the worker failed: ${event.message || `its script cannot be loaded${OWN_WORKER}`}`);
  }

  call<Name extends keyof Calls>(
    call: Name, given: Parameters<Calls[Name]>, transfer: Transferable[] = [], tell?: Tell,
  ): Promise<ReturnType<Calls[Name]>> {
    if (this.#ended) return Promise.reject(this.#ended);
    const id = this.#next++;
    return this.#sent(call, id, given, transfer, tell);
  }

  /** The same for a call that another call can end. Returns its number and its end. */
  start<Name extends keyof Calls>(call: Name, given: Parameters<Calls[Name]>, tell: Tell): { id: number; done: Promise<unknown> } {
    const id = this.#next++;
    return { id, done: this.#ended ? Promise.reject(this.#ended) : this.#sent(call, id, given, [], tell) };
  }

  #sent<Name extends keyof Calls>(
    call: Name, id: number, given: Parameters<Calls[Name]>, transfer: Transferable[], tell: Tell | undefined,
  ): Promise<ReturnType<Calls[Name]>> {
    return new Promise((resolve, reject) => {
      this.#pending.set(id, { resolve: resolve as (result: unknown) => void, reject, tell });
      try {
        this.worker.postMessage({ id, call, given }, transfer);
      } catch (error) {
        this.#pending.delete(id);
        reject(new OptionError(`${call}: this cannot be given to a worker: ${(error as Error).message}`, { cause: error }));
      }
    });
  }

  /** Ends the worker. Pending and later calls fail with the reason. */
  end(reason: string): void {
    this.#ended = new DeviceError(reason);
    this.worker.terminate();
    for (const { reject } of this.#pending.values()) reject(this.#ended);
    this.#pending.clear();
  }
}

let connection: Connection | undefined;
let transferInputs = false;

function connected(): Connection {
  try {
    return (connection ??= new Connection(started()));
  } catch (error) {
    throw new DeviceError(`no worker can be started here: ${messageOf(error)}${OWN_WORKER}`, { cause: error });
  }
}

const OWN_WORKER = '; start ort.wgpu.worker.mjs yourself, and call useWorker({ worker }) first';

declare const HERE: string;
function started(): Worker {
  // Pages cannot start a worker from another server's file, but one of their own that imports it.
  if (HERE && new URL(HERE).origin !== globalThis.location?.origin) {
    const code = `import ${JSON.stringify(new URL('ort.wgpu.worker.mjs', HERE))}`;
    return new Worker(URL.createObjectURL(new Blob([code], { type: 'text/javascript' })), { type: 'module' });
  }
  // Bundlers recognise this form and emit a file for the worker.
  return new Worker(new URL('./ort.wgpu.worker.mjs', import.meta.url), { type: 'module' });
}

/**
 * Runs sessions that are created from now on in this worker, by default in one of dist/ort.wgpu.worker.mjs that the first
 * session starts. With `transferInputs` the data of inputs is transferred and not copied: a tensor is empty after its run.
 */
export function useWorker(options: { readonly worker?: Worker; readonly transferInputs?: boolean }): void {
  if (options.worker) connection = new Connection(options.worker);
  transferInputs = options.transferInputs ?? transferInputs;
}

/** Ends the worker and releases all its objects. Its sessions fail from then on. The next session starts a new worker. */
export function terminate(): void {
  connection?.end('the worker was terminated');
  connection = undefined;
}

function environment(): Environment {
  const { forceFallbackAdapter } = env.webgpu as unknown as Record<string, unknown>;
  return { powerPreference: preferenceOf(env.webgpu), forceFallbackAdapter, profiling: isProfiling(env.webgpu), told: !!env.webgpu.profiling?.ondata };
}

class RemoteSession implements InferenceSessionHandler {
  readonly inputNames: readonly string[];
  readonly outputNames: readonly string[];
  #released: Promise<void> | undefined;

  private constructor(
    private readonly connection: Connection,
    private readonly session: number,
    readonly inputMetadata: readonly InferenceSession.ValueMetadata[],
    readonly outputMetadata: readonly InferenceSession.ValueMetadata[],
  ) {
    this.inputNames = inputMetadata.map((it) => it.name);
    this.outputNames = outputMetadata.map((it) => it.name);
  }

  static async create(source: string | Uint8Array, given: InferenceSession.SessionOptions = {}): Promise<RemoteSession> {
    const to = connected();
    const first = given.executionProviders?.find((it) => (typeof it === 'string' ? it : it.name) === 'webgpu');
    const { device, onProgress, signal, ...provider } = (typeof first === 'object' ? first : {}) as {
      device?: GPUDevice; onProgress?: (progress: Progress) => void; signal?: AbortSignal;
    };
    signal?.throwIfAborted();
    if (device) throw new OptionError('webgpu.device: a device of the page cannot be used in a worker');
    const options = { ...given, executionProviders: [{ ...provider, name: 'webgpu' }] };
    const address = typeof source === 'string' ? new URL(source, globalThis.document?.baseURI ?? globalThis.location?.href).href : source;
    const { id, done } = to.start('create', [address, options, environment()], ({ progress }) => progress && onProgress?.(progress));
    const abort = (): void => void to.call('cancel', [id]).catch(() => undefined);
    signal?.addEventListener('abort', abort);
    try {
      const found = (await done) as Created;
      const session = new RemoteSession(to, found.session, found.inputs, found.outputs);
      if (signal?.aborted) void session.dispose();
      return session;
    } finally {
      signal?.removeEventListener('abort', abort);
      signal?.throwIfAborted(); // with its own reason
    }
  }

  async run(
    feeds: Readonly<Record<string, OnnxValue>>, fetches: Readonly<Record<string, OnnxValue | null>>, options: InferenceSession.RunOptions,
  ): Promise<Record<string, Tensor>> {
    if (this.#released) throw new InputError('the session is released: create it again');
    const transfer = new Set<Transferable>();
    const inputs = Object.entries(feeds).map(([name, it]) => [name, this.#sent(name, it, transferInputs ? transfer : undefined)]);
    const wanted = Object.entries(fetches).map(([name, it]) => {
      const given = it as Tensor | null;
      return [name, given?.location === 'gpu-buffer' ? this.#sent(name, given) : null];
    });
    const results = await this.connection.call('run', [this.session, Object.fromEntries(inputs), Object.fromEntries(wanted), options, environment()], [...transfer]);
    return Object.fromEntries(
      Object.entries(results).map(([name, it]) => [name, this.#received(name, it!, fetches[name] as Tensor | null)]),
    );
  }

  #sent(name: string, value: OnnxValue, transfer?: Set<Transferable>): Sent {
    if (!(value instanceof Tensor)) throw new InputError(`'${name}' is not a tensor`);
    const { type, dims } = value;
    if (value.location !== 'gpu-buffer') {
      if (!liesInMemory(value)) throw unreachable(`'${name}'`, value.location);
      const data = value.data as Exclude<Tensor['data'], string[]>;
      transfer?.add(data.buffer as ArrayBuffer);
      return { type, dims, data };
    }
    const remote = value.gpuBuffer as unknown;
    if (remote instanceof Remote && remote.connection === this.connection) return { type, dims, held: remote.held };
    throw new InputError(`'${name}' is in a GPU buffer of the page, which the worker cannot reach: pass it in memory`);
  }

  #received(name: string, sent: Sent, given: Tensor | null): Tensor {
    const { type, dims, held } = sent;
    if (held !== undefined) {
      if (given?.location === 'gpu-buffer') return given;
      const remote = new Remote(this.connection, held);
      return Tensor.fromGpuBuffer(remote as never, {
        dataType: type as Tensor.GpuBufferDataTypes,
        dims,
        download: () => this.connection.call('read', [held]) as never,
        dispose: () => void this.connection.call('dispose', [held]).catch(() => undefined),
      });
    }
    if (!given) return inMemory(sent);
    if (given.type !== type) throw new InputError(`output '${name}' is ${type}, the tensor passed for it ${given.type}`);
    if (given.dims.join() !== dims.join()) {
      throw new InputError(`output '${name}' has shape [${dims.join(', ')}], the tensor passed for it has [${given.dims.join(', ')}]`);
    }
    (given.data as Uint8Array).set(sent.data as Uint8Array);
    return given;
  }

  warmup(inputs: Readonly<Record<string, readonly number[] | Tensor>>): Promise<void> {
    const given = Object.entries(inputs).map(([name, it]) => [name, it instanceof Tensor ? this.#sent(name, it) : it]);
    return this.connection.call('warmup', [this.session, Object.fromEntries(given)]);
  }

  async *generate(tokens: Prompts, given: GenerateOptions): AsyncGenerator<Step, void, void> {
    const { prompts } = readGenerateOptions(tokens, given, { OptionError });
    const { signal, stop, feeds = {}, ...options } = given;
    signal?.throwIfAborted();
    const more = Object.entries(feeds).map(([name, it]) => [name, this.#sent(name, it)]);
    const queue: Step[] = [];
    const texts = new Texts(prompts.length, [], stop);
    let wake = (): void => undefined;
    let over = false;
    let problem: unknown;
    const { id, done } = this.connection.start('generate', [this.session, prompts, options, Object.fromEntries(more)], ({ step }) => {
      queue.push(step!);
      wake();
    });
    const end = (error?: unknown): void => {
      over = true;
      problem = error;
      wake();
    };
    done.then(() => end(), end);
    const abort = (): void => end(signal!.reason);
    signal?.addEventListener('abort', abort);
    try {
      for (;;) {
        if (signal?.aborted) throw problem;
        const step = queue.shift();
        if (step) {
          const own = texts.add(step);
          if (own.some((it) => it !== undefined)) yield own;
          if (texts.over) return;
        } else if (over) {
          if (problem !== undefined) throw problem;
          return;
        } else await new Promise<void>((resolve) => (wake = resolve));
      }
    } finally {
      signal?.removeEventListener('abort', abort);
      void this.connection.call('cancel', [id]).catch(() => undefined);
      await done.catch(() => undefined); // its objects are free then
    }
  }

  startProfiling(): void {
    void this.connection.call('profile', [this.session, true]);
  }

  endProfiling(): void {
    void this.connection.call('profile', [this.session, false]);
  }

  dispose(): Promise<void> {
    return (this.#released ??= this.connection.call('release', [this.session]));
  }
}

// If a page also imports the package itself, the one imported first is used. WebAssembly runs where onnxruntime-web does.
register({
  async init() {
    const { supported, reason } = await support();
    if (!supported) throw new DeviceError(reason!);
  },
  create: (source, options) => RemoteSession.create(source, options),
}, 30);

async function support(): Promise<WebGPUSupport> {
  return (await connected().call('support', [environment()])) as WebGPUSupport;
}

/** Returns whether exported models run in the worker. */
export async function checkWebGPUSupport(): Promise<WebGPUSupport> {
  try {
    return await support();
  } catch (error) {
    return { supported: false, reason: messageOf(error) };
  }
}

/** Returns the buffers and bytes of the worker on its devices. */
export async function memory(): Promise<MemoryUse> {
  return (await connected().call('memory', [])) as MemoryUse;
}

/** Removes all cached weights. */
export function clearCache(): Promise<void> {
  return connected().call('clearCache', []);
}

function sessionOf(session: InferenceSession): RemoteSession | undefined {
  const handler = handlerOf(session);
  return handler instanceof RemoteSession ? handler : undefined;
}

/** Prepares everything for runs of these shapes, as in the package itself. */
export async function warmup(session: InferenceSession, inputs: Readonly<Record<string, readonly number[] | Tensor>> = {}): Promise<void> {
  await sessionOf(session)?.warmup(inputs);
}

/** Returns milliseconds per run, as in the package itself. */
export async function benchmark(session: InferenceSession, feeds: InferenceSession.FeedsType, iterations = 10): Promise<Times> {
  handlerOf(session);
  return timed(session, feeds, iterations);
}

/** Yields the tokens that follow, as in the package itself. The loop runs in the worker. */
export function generate(session: InferenceSession, tokens: Prompt, options?: GenerateOptions): AsyncGenerator<number, void, void>;
export function generate(session: InferenceSession, texts: readonly Prompt[], options?: GenerateOptions): AsyncGenerator<Step, void, void>;
export async function* generate(
  session: InferenceSession, tokens: Prompts, options: GenerateOptions = {},
): AsyncGenerator<number | Step, void, void> {
  const on = sessionOf(session);
  if (!on) throw new DeviceError('generate needs WebGPU, and this session runs on another backend');
  const batch = isBatch(tokens);
  for await (const step of on.generate(tokens, options)) yield batch ? step : step[0]!;
}
