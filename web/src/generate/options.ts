// The options of a generation. In: the caller's options, and the errors of the library, which loads this with the first
// generation. Out: complete `GenerateOptions`, or an OptionError.

import type { Tensor } from 'onnxruntime-common';
import type * as Errors from '../errors.js';
import { instead } from '../instead.js';

export interface GenerateOptions {
  /** Most tokens, including the prompt. */
  readonly maxLength?: number;
  /** Most tokens after the prompt; 256 if neither is given. */
  readonly maxNewTokens?: number;
  /** 0, the default, takes the most likely token; 1 samples from the model's probabilities. */
  readonly temperature?: number;
  /** Samples from the k most likely tokens; 0 for all. */
  readonly topK?: number;
  /** Samples from the most likely tokens with this total probability; 1 for all. */
  readonly topP?: number;
  /** The same seed samples the same tokens. */
  readonly seed?: number;
  /** Tokens that end a text; they are not returned. */
  readonly stopTokens?: readonly number[];
  /** Ends a text when it is true for the tokens after its prompt; the last of them is returned. */
  readonly stop?: (tokens: readonly number[], text: number) => boolean;
  /**
   * The number of tokens that caches have room for. They then have this size from the beginning and are updated in place.
   * Models with GroupQueryAttention support this, and models with caches of a fixed size.
   */
  readonly cacheLength?: number;
  readonly signal?: AbortSignal;
  /** Further inputs of the model, the same in each step. */
  readonly feeds?: Readonly<Record<string, Tensor>>;
}

type Optional = 'signal' | 'stop' | 'cacheLength';
export type Settings = Required<Omit<GenerateOptions, Optional | 'maxNewTokens'>> & Pick<GenerateOptions, Optional> & {
  /** Whether the caller set the length. */
  readonly limited: boolean;
};

/** The tokens of a text, or of several. */
export type Prompt = ArrayLike<number | bigint>;
export type Prompts = Prompt | readonly Prompt[];

/** Whether these are several texts. */
export function isBatch(tokens: Prompts): tokens is readonly Prompt[] {
  return typeof tokens?.[0] === 'object';
}

type Rule = readonly [accepts: (value: any) => boolean, domain: string]; // eslint-disable-line @typescript-eslint/no-explicit-any
const WHOLE = (it: unknown): boolean => Number.isInteger(it) && Number(it) >= 0;
const TOKENS: Rule = [WHOLE, 'a whole number of tokens'];
const between = (it: unknown, least: number, most: number): boolean => typeof it === 'number' && it >= least && it <= most;
const RULES: Record<string, Rule> = {
  maxLength: TOKENS,
  maxNewTokens: TOKENS,
  temperature: [(it) => between(it, 0, Number.MAX_VALUE), 'a number from 0 on'],
  topK: [WHOLE, 'a whole number of tokens, 0 for all'],
  cacheLength: [(it) => WHOLE(it) && it > 0, TOKENS[1]],
  topP: [(it) => between(it, 0, 1) && it > 0, 'a probability above 0 and up to 1'],
  seed: [Number.isSafeInteger, 'a whole number'],
  stopTokens: [Array.isArray, 'a list of tokens'],
  stop: [(it) => typeof it === 'function', 'a function'],
  signal: [(it) => !it || 'throwIfAborted' in Object(it), 'an AbortSignal'],
  feeds: [(it) => typeof it === 'object', 'tensors by name'],
};

/** Checks and completes the options. Raises OptionError. */
export function readGenerateOptions(
  tokens: Prompts, given: GenerateOptions, { OptionError }: Pick<typeof Errors, 'OptionError'>,
): { prompts: number[][]; settings: Settings } {
  for (const [name, value] of Object.entries(given)) {
    const rule = RULES[name];
    if (!rule) throw new OptionError(`generate: there is no option '${name}'${instead(name, Object.keys(RULES))}`);
    if (value !== undefined && !rule[0](value)) {
      throw new OptionError(`generate: ${name} is ${String(value)}, it takes ${rule[1]}`);
    }
  }
  const prompts = (isBatch(tokens) ? tokens : [tokens]).map((prompt) => {
    const found = Array.from(prompt ?? [], Number);
    if (!found.length) throw new OptionError('generate: the prompt has no tokens; pass numbers, of which the first begins a text');
    const unknown = found.findIndex((it) => !WHOLE(it));
    if (unknown >= 0) {
      throw new OptionError(`generate: token ${unknown} of the prompt is ${String(prompt[unknown])}, it takes whole numbers: does the tokenizer know all words?`);
    }
    return found;
  });
  const longest = Math.max(...prompts.map((it) => it.length));
  const limited = given.maxLength !== undefined || given.maxNewTokens !== undefined;
  const { maxLength = limited ? Infinity : longest + 256, maxNewTokens = Infinity } = given;
  const settings = {
    maxLength: Math.min(maxLength, longest + maxNewTokens),
    limited,
    temperature: given.temperature ?? 0,
    topK: given.topK ?? 0,
    topP: given.topP ?? 1,
    seed: given.seed ?? Math.floor(Math.random() * 2 ** 32),
    stopTokens: given.stopTokens ?? [],
    feeds: given.feeds ?? {},
    ...(given.stop && { stop: given.stop }),
    ...(given.signal && { signal: given.signal }),
    ...(given.cacheLength !== undefined && { cacheLength: given.cacheLength }),
  };
  return { prompts, settings };
}
