// What onnxruntime-web calls its WebAssembly in `executionProviders`.

export const WASM = ['wasm', 'cpu'];
export const isWasm = (provider: string | { readonly name: string } | undefined): boolean =>
  WASM.includes(typeof provider === 'object' ? provider.name : provider!);
