// One backend for `webgpu` and `wasm`: where there is no WebGPU, or it lacks what a model needs, or the model is no export,
// onnxruntime-web opens the ONNX model, in WebAssembly or on its own WebGPU. It has an onnxruntime-common of its own inside, so its backends are unknown to ours; therefore
// `wasm` is registered here, too. Invariant: nothing of onnxruntime-web is loaded before a session needs it.

import { type Backend, type InferenceSession, type InferenceSessionHandler, Tensor, env, registerBackend } from 'onnxruntime-common';
import * as errors from '../errors.js';
import { ELSEWHERE, WASM, isWasm } from './names.js';

/** What is used of `onnxruntime-web/wasm`. */
export interface OnnxRuntimeWeb {
  readonly InferenceSession: unknown;
  readonly Tensor: unknown;
  readonly env: unknown;
}
type Load = () => OnnxRuntimeWeb | Promise<OnnxRuntimeWeb | { readonly default: OnnxRuntimeWeb }>;

// A name that an import map or Node resolves; bundlers would look for it where it is not wanted, if it were a text in `import()`.
const MODULE = ['onnxruntime-web', 'wasm'].join('/');
let from: unknown = () => import(MODULE);

/** What WebGPU cannot run here, and something else may. What is wrong with an export is no reason to run something else. */
const REASONS = [errors.DeviceError, errors.LimitError, errors.NotExportedError];
/** The first byte of exports, which WebGPU alone runs: transformers.js asks for `wasm` without a `device`. */
export const EXPORT = 119;

/**
 * Says where `wasm` of `executionProviders` comes from: `useWasm(() => import('onnxruntime-web/wasm'))`, which bundlers need, or
 * the address of a file, `ort.wasm.bundle.min.mjs`. `onnxruntime-web/webgpu` does, too: then ONNX models that are not exported run on
 * its WebGPU. Elsewhere `onnxruntime-web/wasm` is found by an import map, or by Node. Raises OptionError.
 */
export function useWasm(module: Load | string | URL): void {
  if (typeof module !== 'function' && !(module && (typeof module === 'string' || module instanceof URL))) {
    throw new errors.OptionError(`useWasm takes () => import('${MODULE}') or an address, not ${String(module)}`);
  }
  from = module;
}

type Source = string | Uint8Array;
export interface WebGPU {
  /** Raises DeviceError where there is none that exported models run on, OptionError where env.webgpu is wrong. */
  init(): Promise<unknown>;
  create(source: Source, options: InferenceSession.SessionOptions): Promise<InferenceSessionHandler>;
}

/** Registers `webgpu`, and `wasm` with its other name. Of several backends of one name onnxruntime-common has the first, whatever their priorities. */
export function register({ init, create }: WebGPU, priority: number): void {
  const backend: Backend = {
    // onnxruntime-common begins all backends that a session names, also those that it does not use.
    init: async (name: string) => {
      // Sessions that name another one, too, run there, and onnxruntime-common prints this.
      if (ELSEWHERE.includes(name)) throw new errors.OptionError(`there is no ${name} here: name 'webgpu', or import onnxruntime-web`);
      // onnxruntime-common keeps an error of init for as long as the page lives; that of an option can be mended.
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
