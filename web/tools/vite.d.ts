import type { Plugin } from 'vite';

export interface WgpuOptions {
  /** Arguments of `wgpu-ep export` for every model, such as `['--fp16']`; an import adds its own. */
  args?: readonly string[];
  /** Where exports are kept, from the root of the application on; `node_modules/.cache/onnxruntime-ep-wgpu-web` unless given. */
  cache?: string;
}

/**
 * Exports the models that are imported as `./model.onnx?wgpu`, with `wgpu-ep` of the Python package; the import is the address of the
 * export, which `InferenceSession.create` takes. Names in the query are arguments: `./model.onnx?override=batch=1&fp16&wgpu`.
 */
export default function wgpu(options?: WgpuOptions): Plugin;
