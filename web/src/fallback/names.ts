// The names of onnxruntime-web's WebAssembly backend in `executionProviders`.

export const WASM = ['wasm', 'cpu'];
/** Other backends of onnxruntime-web that this package lacks. */
export const ELSEWHERE = ['webnn', 'webgl'];
export const isWasm = (provider: string | { readonly name: string } | undefined): boolean =>
  WASM.includes(typeof provider === 'object' ? provider.name : provider!);
