// The messages between a page and its worker. Tensors in memory are sent as typed arrays. Tensors on the GPU stay in the worker
// and are sent as numbers.

import { Tensor } from 'onnxruntime-common';
import type { InferenceSession } from 'onnxruntime-common';
import * as errors from '../errors.js';
import type { GenerateOptions } from '../generate/options.js';
import type { Step } from '../generate/texts.js';

/** A tensor in a message: `data` in memory, or `held`, the number of a tensor that the worker has on the GPU. */
export interface Sent {
  readonly type: Tensor.Type;
  readonly dims: readonly number[];
  readonly data?: ArrayBufferView;
  readonly held?: number;
}
export type SentTensors = Readonly<Record<string, Sent | null>>;

/** Calls of the page by name: the arguments to the worker and its result. */
export interface Calls {
  create(source: string | Uint8Array, options: InferenceSession.SessionOptions, environment: Environment): Created;
  run(session: number, feeds: SentTensors, fetches: SentTensors, options: InferenceSession.RunOptions, environment: Environment): SentTensors;
  warmup(session: number, inputs: Readonly<Record<string, readonly number[] | Sent>>): void;
  profile(session: number, on: boolean): void;
  /** The tokens of each step are sent as news. */
  generate(session: number, texts: readonly (readonly number[])[], options: GenerateOptions, feeds: Readonly<Record<string, Sent>>): void;
  /** Ends the creation or the generation of that call. */
  cancel(id: number): void;
  release(session: number): void;
  read(held: number): ArrayBufferView;
  dispose(held: number): void;
  support(environment: Environment): unknown;
  memory(): unknown;
  clearCache(): void;
}

export interface Created {
  readonly session: number;
  readonly inputs: readonly InferenceSession.ValueMetadata[];
  readonly outputs: readonly InferenceSession.ValueMetadata[];
}

/** The fields of env.webgpu that a worker can receive. */
export interface Environment {
  readonly powerPreference: unknown;
  readonly forceFallbackAdapter: unknown;
  readonly profiling: boolean;
  /** Whether the page receives measured dispatches; otherwise the worker prints them. */
  readonly told: boolean;
}

export interface Request {
  readonly id: number;
  readonly call: keyof Calls;
  readonly given: readonly unknown[];
}

/**
 * The end of a request, or news in `told`: the progress of a creation, the tokens of a step, or a measured dispatch of any
 * session.
 */
export interface Answer {
  readonly id: number;
  readonly result?: unknown;
  readonly error?: Thrown;
  readonly told?: { readonly progress?: { loaded: number; total: number }; readonly profile?: unknown; readonly step?: Step };
}

/** `plain` if the source is not an export. */
export interface Thrown {
  readonly name: string;
  readonly message: string;
  readonly plain: boolean;
}

/** Returns the error that another thread threw, as an instance of its class. */
export function revived({ name, message, plain }: Thrown): Error {
  if (plain) return new errors.NotExportedError(message);
  const Type = (errors as unknown as Record<string, new (message: string) => Error>)[name] ?? Error;
  return new Type(message);
}

/** Returns a received tensor in memory. */
export function inMemory({ type, dims, data }: Sent): Tensor {
  return new Tensor(type, data as never, dims);
}
