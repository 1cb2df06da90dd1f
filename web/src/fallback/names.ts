// What onnxruntime-web calls its WebAssembly in `executionProviders`.

export const WASM = ['wasm', 'cpu'];
/** What onnxruntime-web has beside it, and this package has not. */
export const ELSEWHERE = ['webnn', 'webgl'];
export const isWasm = (provider: string | { readonly name: string } | undefined): boolean =>
  WASM.includes(typeof provider === 'object' ? provider.name : provider!);
