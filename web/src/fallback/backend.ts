// One backend for two names, `webgpu` and `wasm`: where there is no WebGPU, or it lacks what a model needs, onnxruntime-web opens
// the ONNX model in WebAssembly. It has an onnxruntime-common of its own inside, so its backends are unknown to ours; therefore
// `wasm` is registered here, too. Invariant: nothing of onnxruntime-web is loaded before a session needs it.

import { type Backend, type InferenceSession, type InferenceSessionHandler, Tensor, env, registerBackend } from 'onnxruntime-common';
import * as errors from '../errors.js';

/** What is used of `onnxruntime-web/wasm`. */
export interface OnnxRuntimeWeb {
  readonly InferenceSession: unknown;
  readonly Tensor: unknown;
  readonly env: unknown;
}
type Load = () => Promise<OnnxRuntimeWeb | { readonly default: OnnxRuntimeWeb }>;

// A name that an import map or Node resolves; bundlers would look for it where nobody wants it.
const MODULE = 'onnxruntime-web/wasm';
let load: Load = () => import(/* webpackIgnore: true */ /* @vite-ignore */ MODULE) as ReturnType<Load>;

/**
 * Says where `wasm` of `executionProviders` comes from: `useWasm(() => import('onnxruntime-web/wasm'))`. Bundlers need that;
 * elsewhere that module is found by an import map, or by Node.
 */
export function useWasm(from: Load): void {
  load = from;
}

type Source = string | Uint8Array;
export interface WebGPU {
  /** Raises DeviceError where there is none that exported models run on. */
  init(): Promise<void>;
  create(source: Source, options: InferenceSession.SessionOptions): Promise<InferenceSessionHandler>;
}

/** Registers `webgpu` and `wasm`. Of several backends of one name onnxruntime-common has the first, whatever their priorities. */
export function register({ init, create }: WebGPU, priority: number): void {
  const backend: Backend = {
    // onnxruntime-common begins all backends that a session names, also those that it does not use.
    init: async (name: string) => (name === 'wasm' ? undefined : init()),
    async createInferenceSessionHandler(source, options = {}) {
      const names = (options.executionProviders ?? []).map((it) => (typeof it === 'string' ? it : it.name));
      if (names[0] !== 'wasm') {
        try {
          return await create(source, options);
        } catch (error) {
          if (!names.includes('wasm') || !(error instanceof errors.DeviceError || error instanceof errors.LimitError)) throw error;
          console.warn(`this session runs in WebAssembly, because WebGPU cannot run it: ${error.message}`);
        }
      }
      return (await import('./wasm.js')).open({ Tensor, env, errors }, source, options, load);
    },
  };
  registerBackend('webgpu', backend, priority);
  // Only for sessions that name it.
  registerBackend('wasm', backend, priority - 100);
}
