// What the providers take beyond the options that onnxruntime-common declares.

import 'onnxruntime-common';

declare module 'onnxruntime-common' {
  namespace InferenceSession {
    interface WebGpuExecutionProviderOption {
      /** Told how many bytes of the weights have arrived. */
      onProgress?: (progress: Progress) => void;
      /** Ends the creation of the session, which then throws its reason. */
      signal?: AbortSignal;
      enableGraphCapture?: boolean;
    }
    interface WebAssemblyExecutionProviderOption {
      /** The ONNX model, by address or as bytes, where it is not beside the export. */
      model?: string | Uint8Array;
    }
  }
}

/** Told while a session is created: bytes of weights that have arrived, and of all. */
export interface Progress {
  readonly loaded: number;
  readonly total: number;
}
