// What a page and its worker say to each other. Tensors in memory go as typed arrays; tensors on the GPU stay in the worker and
// go as numbers.

import { Tensor } from 'onnxruntime-common';
import type { InferenceSession } from 'onnxruntime-common';
import * as errors from '../errors.js';
import type { GenerateOptions } from '../generate/options.js';
import type { Step } from '../generate/texts.js';

/** A tensor on its way: `data` in memory, or `held`, the number of one that the worker has on the GPU. */
export interface Sent {
  readonly type: Tensor.Type;
  readonly dims: readonly number[];
  readonly data?: ArrayBufferView;
  readonly held?: number;
}
export type SentTensors = Readonly<Record<string, Sent | null>>;

/** Calls of the page, by name: what goes to the worker and what comes back. */
export interface Calls {
  create(source: string | Uint8Array, options: InferenceSession.SessionOptions, environment: Environment): Created;
  run(session: number, feeds: SentTensors, fetches: SentTensors, options: InferenceSession.RunOptions, environment: Environment): SentTensors;
  warmup(session: number, inputs: Readonly<Record<string, readonly number[] | Sent>>): void;
  profile(session: number, on: boolean): void;
  /** The tokens of each step are sent. */
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

/** Of env.webgpu, what a worker can get. */
export interface Environment {
  readonly powerPreference: unknown;
  readonly forceFallbackAdapter: unknown;
  readonly profiling: boolean;
  /** The page hears of dispatches that are measured; else the worker prints them. */
  readonly told: boolean;
}

export interface Request {
  readonly id: number;
  readonly call: keyof Calls;
  readonly given: readonly unknown[];
}

/** The end of a request, or with `told` news: the progress of creating, the tokens of a step, or of any session a dispatch that was measured. */
export interface Answer {
  readonly id: number;
  readonly result?: unknown;
  readonly error?: Thrown;
  readonly told?: { readonly progress?: { loaded: number; total: number }; readonly profile?: unknown; readonly step?: Step };
}

/** `plain` where what was opened is no export. */
export interface Thrown {
  readonly name: string;
  readonly message: string;
  readonly plain: boolean;
}

/** The error that another thread threw, of its class here. */
export function revived({ name, message, plain }: Thrown): Error {
  if (plain) return new errors.NotExportedError(message);
  const Type = (errors as unknown as Record<string, new (message: string) => Error>)[name] ?? Error;
  return new Type(message);
}

/** A tensor in memory of what was sent. */
export function inMemory({ type, dims, data }: Sent): Tensor {
  return new Tensor(type, data as never, dims);
}
