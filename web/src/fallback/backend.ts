// One backend for `webgpu` and `wasm`. In three cases the ONNX model is opened by onnxruntime-web, in WebAssembly or on its own
// WebGPU:
//
// - There is no WebGPU.
// - WebGPU lacks what a model needs.
// - The model is not an export.
//
// The library onnxruntime-web contains its own onnxruntime-common, so its backends are not registered in ours. Therefore `wasm`
// is registered here. Invariant: nothing of onnxruntime-web is loaded before a session needs it.

import { type Backend, type InferenceSession, type InferenceSessionHandler, Tensor, env, registerBackend } from 'onnxruntime-common';
import * as errors from '../errors.js';
import { ELSEWHERE, WASM, isWasm } from './names.js';

/** The parts of `onnxruntime-web/wasm` that are used. */
export interface OnnxRuntimeWeb {
  readonly InferenceSession: unknown;
  readonly Tensor: unknown;
  readonly env: unknown;
}
type Load = () => OnnxRuntimeWeb | Promise<OnnxRuntimeWeb | { readonly default: OnnxRuntimeWeb }>;

// An import map or Node resolves the name. Bundlers would resolve a literal in `import()` even if it is not wanted.
const MODULE = ['onnxruntime-web', 'wasm'].join('/');
let from: unknown = () => import(MODULE);

/** Errors after which another backend may succeed. A damaged export is not among them. */
const REASONS = [errors.DeviceError, errors.LimitError, errors.NotExportedError];
/** The first byte of exports, which run only on WebGPU. transformers.js requests `wasm` without a `device`. */
export const EXPORT = 119;

/**
 * Sets the source of `wasm` in `executionProviders`: `useWasm(() => import('onnxruntime-web/wasm'))`, which bundlers need, or
 * the address of a file, `ort.wasm.bundle.min.mjs`. With `onnxruntime-web/webgpu`, ONNX models that are not exported run on
 * its WebGPU. Without a call, an import map or Node finds `onnxruntime-web/wasm`. Raises OptionError.
 */
export function useWasm(module: Load | string | URL): void {
  if (typeof module !== 'function' && !(module && (typeof module === 'string' || module instanceof URL))) {
    throw new errors.OptionError(`useWasm takes () => import('${MODULE}') or an address, not ${String(module)}`);
  }
  from = module;
}

type Source = string | Uint8Array;
export interface WebGPU {
  /** Raises DeviceError if exported models cannot run here, and OptionError if env.webgpu is wrong. */
  init(): Promise<unknown>;
  create(source: Source, options: InferenceSession.SessionOptions): Promise<InferenceSessionHandler>;
}

/**
 * Registers `webgpu`, and `wasm` with its other name. Of several backends with one name onnxruntime-common uses the first,
 * regardless of priorities.
 */
export function register({ init, create }: WebGPU, priority: number): void {
  const backend: Backend = {
    // onnxruntime-common initialises all backends that a session names, including those that it does not use.
    init: async (name: string) => {
      // Sessions that also name another backend run there, and onnxruntime-common prints this.
      if (ELSEWHERE.includes(name)) throw new errors.OptionError(`there is no ${name} here: name 'webgpu', or import onnxruntime-web`);
      // onnxruntime-common keeps an error of init for the lifetime of the page, but an option can be corrected.
      if (!isWasm(name)) await init().catch((error) => { if (!(error instanceof errors.OptionError)) throw error; });
    },
    async createInferenceSessionHandler(source, options = {}) {
      const providers = options.executionProviders ?? [];
      let reason: Error | undefined;
      if (!isWasm(providers[0]) || source[0] === EXPORT) {
        try {
          return await create(source, options);
        } catch (error) {
          if (!providers.some(isWasm) || !REASONS.some((it) => error instanceof it)) throw error;
          reason = error as Error;
        }
      }
      return (await import('./wasm.js')).open({ Tensor, env, errors }, source, options, from, reason);
    },
  };
  registerBackend('webgpu', backend, priority);
  // Only for sessions that name it.
  for (const name of [...WASM, ...ELSEWHERE]) registerBackend(name, backend, priority - 100);
}
