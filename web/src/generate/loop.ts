// Text token by token from a causal language model. In: a session whose inputs are named as exporters name them, and a prompt.
// Out: the tokens that follow. Logits and KV cache never leave the GPU; four bytes do, in each step. Without a cache the whole
// text goes through the model in each step.

import type { Gpu } from '../device.js';
import type { Settings } from './options.js';
import { Sampler } from './sample.js';

/** A value of the model, as the session knows it; a dim that is free is a name. */
export interface Port {
  readonly name: string;
  readonly type: string;
  readonly shape: readonly (number | string)[];
}

/** An input in memory or on the GPU, and a result there. */
export interface Fed {
  readonly dims: readonly number[];
  readonly bytes?: Uint8Array;
  readonly buffer?: GPUBuffer;
}
export interface Made {
  readonly dims: readonly number[];
  readonly buffer: GPUBuffer;
}

/** What the loop needs of a session. */
export interface Model {
  readonly inputs: readonly Port[];
  readonly outputs: readonly Port[];
  /** Runs with results on the GPU; only those of `wanted`. */
  run(feeds: Readonly<Record<string, Fed>>, wanted: readonly string[]): Promise<Record<string, Made>>;
  gpu(): Promise<Gpu>;
  recycle(buffer: GPUBuffer): void;
  /** An error about the model's inputs and outputs. */
  wrong(message: string): Error;
}

const PAST = /^past_key_values|^past(?=[._])/;

/** Numbers that look random, from 0 to 1; the same for the same seed (mulberry32). */
function* chances(seed: number): Generator<number, never> {
  for (let state = seed | 0; ; ) {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    yield ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  }
}

function integers(type: string, numbers: readonly number[]): Fed {
  const data = type === 'int32' ? Int32Array.from(numbers) : BigInt64Array.from(numbers, BigInt);
  return { dims: [1, numbers.length], bytes: new Uint8Array(data.buffer) };
}

/** Which input has which role, and what comes back for the caches. */
function roles(model: Model, more: Readonly<Record<string, Fed>>) {
  const { inputs, outputs } = model;
  const caches = new Map<string, Port>();
  const known = ['input_ids', 'attention_mask', 'position_ids'];
  for (const port of inputs) {
    if (known.includes(port.name) || port.name in more) continue;
    if (!PAST.test(port.name)) {
      throw model.wrong(`generate does not know what to give the input '${port.name}': pass it as feeds: {'${port.name}': ...}`);
    }
    const result = port.name.replace(PAST, 'present');
    if (!outputs.some((it) => it.name === result)) throw model.wrong(`the cache '${port.name}' has no output '${result}'`);
    caches.set(result, port);
  }
  const logits = outputs.find((it) => it.name === 'logits') ?? outputs.find((it) => it.shape.length === 3);
  if (!logits || !/^float(16|32)$/.test(logits.type)) throw model.wrong('generate needs an output of logits, float32 or float16');
  const type = (name: string): string | undefined => inputs.find((it) => it.name === name)?.type;
  if (!type('input_ids')) throw model.wrong("generate needs an input 'input_ids'");
  return { caches, logits, type };
}

const bytesOf = (type: string): number => (type === 'float16' ? 2 : 4);

export async function* generated(
  model: Model, prompt: readonly number[], settings: Settings, more: Readonly<Record<string, Fed>>,
): AsyncGenerator<number, void, void> {
  const { caches, logits, type } = roles(model, more);
  const sampler = new Sampler(await model.gpu(), logits.type === 'float16', settings);
  const chance = chances(settings.seed);
  const made: number[] = [];
  const stops = new Set(settings.stopTokens);
  const wanted = [logits.name, ...caches.keys()];
  // Empty caches; a batch of one.
  let state: Record<string, Fed> = {};
  for (const { name, shape, type: cached } of caches.values()) {
    const dims = shape.map((it, axis) => (typeof it === 'number' ? it : axis ? 0 : 1));
    state[name] = { dims, bytes: new Uint8Array(dims.reduce((a, b) => a * b, bytesOf(cached))) };
  }
  let held: GPUBuffer[] = [];
  let fed = 0; // tokens that are in the caches
  try {
    while (prompt.length + made.length < settings.maxLength) {
      settings.signal?.throwIfAborted();
      const total = prompt.length + made.length;
      const tokens = made.length && caches.size ? made.slice(-1) : [...prompt, ...made];
      const places = tokens.map((_, k) => fed + k);
      const feeds: Record<string, Fed> = { ...more, ...state };
      const give = (name: string, numbers: readonly number[]): void => {
        const of = type(name);
        if (of && !(name in more)) feeds[name] = integers(of, numbers);
      };
      give('input_ids', tokens);
      give('position_ids', places);
      give('attention_mask', Array<number>(total).fill(1));
      const results = await model.run(feeds, wanted);
      for (const it of held) model.recycle(it);
      held = Object.values(results).map((it) => it.buffer);
      state = {};
      for (const [name, port] of caches) state[port.name] = results[name]!;
      if (caches.size) fed = total;
      const { dims, buffer } = results[logits.name]!;
      const count = dims.at(-1)!;
      const rows = dims.slice(0, -1).reduce((a, b) => a * b, 1);
      const token = await sampler.next(buffer, (rows - 1) * count, count, chance.next().value);
      settings.signal?.throwIfAborted();
      if (token === undefined) throw model.wrong(`the model gives no numbers for token ${total}: its logits are all NaN`);
      if (stops.has(token)) return;
      made.push(token);
      yield token;
      if (settings.stop?.(made)) return;
    }
  } finally {
    for (const it of held) model.recycle(it);
    sampler.release();
  }
}
