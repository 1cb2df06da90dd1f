// Options of the providers beyond those that onnxruntime-common declares.

import 'onnxruntime-common';

declare module 'onnxruntime-common' {
  namespace InferenceSession {
    interface WebGpuExecutionProviderOption {
      /** Receives the number of bytes of the weights that have arrived. */
      onProgress?: (progress: Progress) => void;
      /** Aborts the creation of the session, which then throws its reason. */
      signal?: AbortSignal;
      enableGraphCapture?: boolean;
    }
    interface WebAssemblyExecutionProviderOption {
      /** The ONNX model, by address or as bytes, if it is not beside the export. */
      model?: string | Uint8Array;
    }
  }
}

/** The progress of creating a session: the bytes of weights that have arrived, and of all. */
export interface Progress {
  readonly loaded: number;
  readonly total: number;
}
