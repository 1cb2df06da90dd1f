// onnxruntime-ep-wgpu-web. Importing it registers the backend `webgpu` of onnxruntime-common. It exports all of
// onnxruntime-common too.

import * as common from 'onnxruntime-common';
import { type InferenceSession, type InferenceSessionHandler, Tensor, env } from 'onnxruntime-common';
import type { Times } from './benchmark.js';
import * as errors from './errors.js';
import { hasDevice, sharedAdapter, sharedGpu } from './device.js';
import { EXPORT, register } from './fallback/backend.js';
import type { GenerateOptions, Prompt, Prompts } from './generate/options.js';
import type { Decoder } from './generate/text.js';
import type { Step } from './generate/texts.js';
import { handlerOf } from './handler.js';
import { BASELINE, lack } from './program.js';
import { Session, measuring } from './session.js';

export * from 'onnxruntime-common';
/** As in onnxruntime-web, which this module replaces: all of onnxruntime-common. */
export default common;
export type { Times } from './benchmark.js';
export { type MemoryUse, memory } from './memory.js';
export { type OnnxRuntimeWeb, useWasm } from './fallback/backend.js';
export type { GenerateOptions, Prompt } from './generate/options.js';
export type { Step } from './generate/texts.js';
export type { Decoder } from './generate/text.js';
export { DeviceError, InputError, LimitError, OptionError, ProgramError, WgpuError } from './errors.js';
export type { Progress } from './provider.js';
export { clearCache } from './files.js';

declare const VERSION: string;

export interface WebGPUSupport {
  readonly supported: boolean;
  /** The reason if it is not supported. */
  readonly reason?: string;
  readonly features?: readonly string[];
}

/** Returns the features of an adapter that runs exported models. Raises DeviceError, OptionError. */
async function featuresHere(): Promise<string[]> {
  const { features, limits } = hasDevice() ? (await sharedGpu()).device : await sharedAdapter();
  const reason = lack(BASELINE, features as ReadonlySet<string>, limits);
  if (reason) throw new errors.DeviceError(`this adapter cannot run exported models: web-baseline ${reason}`);
  return [...(features as ReadonlySet<string>)];
}

/** Returns whether exported models run here. */
export async function checkWebGPUSupport(): Promise<WebGPUSupport> {
  try {
    return { supported: true, features: await featuresHere() };
  } catch (error) {
    return { supported: false, reason: errors.messageOf(error) };
  }
}

/** The most bytes of an ONNX model that is checked for a single node. */
const HOST_BYTES = 4096;

/**
 * Returns a session on an ONNX model with one node, in JavaScript; undefined for other bytes, and if its code cannot be
 * loaded.
 */
async function openHere(bytes: Uint8Array): Promise<InferenceSessionHandler | undefined> {
  const host = await import('./host/session.js').catch((error) => console.warn(`models of one node need ort.wgpu.host.mjs: ${errors.messageOf(error)}`));
  return host?.open({ Tensor, errors }, bytes);
}

register({
  init: featuresHere,
  async create(source, options) {
    // Models of a few bytes that are not an export, from libraries that use one operator.
    const small = typeof source === 'object' && source.byteLength < HOST_BYTES && source[0] !== EXPORT;
    return (small && (await openHere(source))) || Session.create(source, options);
  },
}, 20);
// Not as `web`: transformers.js takes that for a version of onnxruntime-web, and fetches its WebAssembly.
Object.assign(env.versions, { wgpu: VERSION });

function sessionOf(session: InferenceSession): Session | undefined {
  const handler = handlerOf(session);
  return handler instanceof Session ? handler : undefined;
}

/**
 * Prepares everything for runs of these shapes: kernels, buffers, bind groups. Inputs are shapes by name, or tensors if their
 * values set shapes. Inputs of fixed shape may be omitted. Sessions in WebAssembly need nothing.
 */
export async function warmup(
  session: InferenceSession,
  inputs: Readonly<Record<string, readonly number[] | Tensor>> = {},
): Promise<void> {
  const on = sessionOf(session);
  if (on) await (await measuring()).warm(on, inputs, errors);
}

/** Returns milliseconds per run with results in memory, after one run that is not counted. */
export async function benchmark(session: InferenceSession, feeds: InferenceSession.FeedsType, iterations = 10): Promise<Times> {
  handlerOf(session);
  return (await measuring()).timed(session, feeds, iterations);
}

const loop = (): Promise<typeof import('./generate/loop.js')> => import('./generate/loop.js');

/**
 * Yields the tokens that a causal language model generates after `tokens`, one by one, until the length is reached or a stop
 * is met. An aborted signal throws its reason. For several texts, yields the tokens of each step: undefined for texts that
 * have ended.
 *
 * The model's inputs are `input_ids` and, if it has them, `attention_mask`, `position_ids`, `cache_position` and caches
 * `past...`. The caches stay on the GPU as `present...` and are freed at the end. Raises OptionError, InputError; DeviceError
 * without WebGPU.
 */
export function generate(session: InferenceSession, tokens: Prompt, options?: GenerateOptions): AsyncGenerator<number, void, void>;
export function generate(session: InferenceSession, texts: readonly Prompt[], options?: GenerateOptions): AsyncGenerator<Step, void, void>;
export async function* generate(
  session: InferenceSession, tokens: Prompts, options: GenerateOptions = {},
): AsyncGenerator<number | Step, void, void> {
  yield* (await loop()).generate(sessionOf(session), tokens, options, errors);
}

/**
 * Yields the text of tokens in pieces, as soon as they are final: no partial characters. Ends before the first of the texts of
 * `stop`, no part of which is returned.
 */
export async function* streamText(
  tokenizer: Decoder, tokens: AsyncIterable<number> | Iterable<number>, options: { readonly stop?: readonly string[] } = {},
): AsyncGenerator<string, void, void> {
  yield* (await loop()).streamText(tokenizer, tokens, options);
}
