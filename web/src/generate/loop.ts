// Generates texts token by token with a causal language model. In: a session with inputs named as exporters name them, and
// prompts. Out: the tokens that follow. // Logits and KV caches stay on the GPU; four bytes per text and step are read back.
// Caches grow from run to run, or have a fixed size and are updated in place. Without caches, each step runs the model on the
// whole texts. With caches, the next run reads its tokens on the GPU where they are sampled, and is submitted before they are
// read back. So the GPU does not wait for the host. When a text ends because of its content, one step was run in vain.

import type { Gpu } from '../device.js';
import { nbytes } from '../dtypes.js';
import type * as errors from '../errors.js';
import type { Session } from '../session.js';
import { type Fed, type Made, type Model, type Port, modelOf } from './model.js';
import { type GenerateOptions, type Prompts, type Settings, isBatch, readGenerateOptions } from './options.js';
import { type Read, Sampler } from './sample.js';
import { type Step, Texts } from './texts.js';

export { streamText } from './text.js';

const PAST = /^past_key_values|^past(?=[._])/;
const KNOWN = ['input_ids', 'attention_mask', 'position_ids', 'cache_position'];
const PADDING = 0; // any token; the mask hides it

/** Pseudo-random numbers from 0 to 1, the same for the same seed (mulberry32). */
function* chances(seed: number): Generator<number, never> {
  for (let state = seed | 0; ; ) {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    yield ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  }
}

/**
 * Returns integers of a shape, by row and column. Written without a list of numbers, because the mask of a long text is as
 * long.
 */
function integers(type: string, dims: readonly number[], of: (row: number, column: number) => number): Fed {
  const columns = dims.at(-1)!;
  const rows = dims.length > 1 ? dims[0]! : 1;
  const size = type === 'int32' ? 1 : 2; // in words; no integer is negative, so the upper words are 0
  const words = new Int32Array(size * rows * columns);
  for (let row = 0, at = 0; row < rows; row++) for (let column = 0; column < columns; column++, at += size) words[at] = of(row, column);
  return { dims, bytes: new Uint8Array(words.buffer) };
}

/** Assigns roles to the inputs, and outputs to the caches. */
function roles(model: Model, more: Readonly<Record<string, Fed>>) {
  const { inputs, outputs } = model;
  const caches = new Map<string, Port>();
  for (const port of inputs) {
    if (KNOWN.includes(port.name) || port.name in more) continue;
    if (!PAST.test(port.name)) {
      throw model.wrong(`generate does not know what to give the input '${port.name}': pass it as feeds: {'${port.name}': ...}`);
    }
    const result = port.name.replace(PAST, 'present');
    if (!outputs.some((it) => it.name === result)) throw model.wrong(`the cache '${port.name}' has no output '${result}'`);
    caches.set(result, port);
  }
  const logits = outputs.find((it) => it.name === 'logits');
  if (!logits) {
    throw model.wrong(`generate needs an output 'logits' (batch, sequence, vocabulary), and the model has ${outputs.map((it) => it.name).join(', ')}: is it a causal language model?`);
  }
  if (!/^float(16|32)$/.test(logits.type) || logits.shape.length !== 3) {
    throw model.wrong(`generate: 'logits' is ${logits.type} [${logits.shape.join(', ')}], it has to be float32 or float16 (batch, sequence, vocabulary)`);
  }
  const port = (name: string): Port | undefined => inputs.find((it) => it.name === name);
  const ids = port('input_ids');
  if (!ids) throw model.wrong("generate needs an input 'input_ids'");
  return { caches, logits, port, ids };
}

/** The caches of a generation: growing ones that are empty at first, or ones of a fixed size with fixed buffers. */
class Caches {
  /** By the name of the input. */
  state: Record<string, Fed> = {};
  /** The most tokens, if there is a limit. */
  readonly room: number = Infinity;
  /** The buffers of the fixed caches, by the name of the input. */
  readonly #fixed = new Map<string, GPUBuffer>();
  #held: GPUBuffer[] = [];

  constructor(
    private readonly model: Model,
    private readonly gpu: Gpu,
    private readonly ports: ReadonlyMap<string, Port>,
    texts: number,
    length: number | undefined,
  ) {
    for (const { name, shape, dtype } of ports.values()) {
      const free = shape.findIndex((it, axis) => axis && typeof it === 'string');
      const dims = shape.map((it, axis) => (typeof it === 'number' ? it : axis ? (length ?? 0) : texts));
      const bytes = nbytes(dtype, dims.reduce((a, b) => a * b, 1));
      if (free > 0 && length === undefined) {
        this.state[name] = { dims, bytes: new Uint8Array(bytes) };
        continue;
      }
      const buffer = gpu.storage(bytes, `the cache '${name}'`); // zeros
      this.#fixed.set(name, buffer);
      this.state[name] = { dims, buffer };
      // The axis of tokens is the free one, or the second to last: (batch, heads, tokens, width).
      this.room = Math.min(this.room, dims[free > 0 ? free : dims.length - 2]!);
    }
  }

  /** The destinations of a run. */
  get places(): Record<string, 'new' | Made> {
    const place = (name: string): 'new' | Made => (this.#fixed.has(name) ? (this.state[name] as Made) : 'new');
    return Object.fromEntries([...this.ports].map(([result, { name }]) => [result, place(name)]));
  }

  /** Takes the results of a run, and returns those of the run before. */
  take(results: Readonly<Record<string, Made>>): void {
    this.#free();
    const fixed = new Set(this.#fixed.values());
    // In the model's order, and returned from the last to the first: the next run takes the same buffers for the same results.
    this.#held = this.model.outputs.flatMap(({ name }) => (results[name] && !fixed.has(results[name].buffer) ? results[name].buffer : [])).reverse();
    for (const [result, { name }] of this.ports) this.state[name] = results[result]!;
  }

  #free(): void {
    for (const it of this.#held) this.model.recycle(it);
    this.#held = [];
  }

  release(): void {
    this.#free();
    for (const it of this.#fixed.values()) this.gpu.free(it);
  }
}

/**
 * Yields the tokens that follow, one by one or per step of several texts. `session` is undefined for another backend. Raises
 * DeviceError, OptionError.
 */
export async function* generate(
  session: Session | undefined, tokens: Prompts, options: GenerateOptions, library: typeof errors,
): AsyncGenerator<number | Step, void, void> {
  if (!session) throw new library.DeviceError('generate needs WebGPU, and this session runs on another backend');
  const { prompts, settings } = readGenerateOptions(tokens, options, library);
  const feeds = Object.fromEntries(Object.entries(settings.feeds).map(([name, it]) => [name, session.fed(name, it)]));
  const batch = isBatch(tokens);
  for await (const step of generated(modelOf(session, library), prompts, settings, feeds)) yield batch ? step : step[0]!;
}

/** Yields the tokens of each step, undefined for texts that have ended. Shorter texts begin with padding that is masked. */
export async function* generated(
  model: Model, prompts: readonly (readonly number[])[], settings: Settings, more: Readonly<Record<string, Fed>>,
): AsyncGenerator<Step, void, void> {
  const { caches: ports, logits, port, ids } = roles(model, more);
  const count = prompts.length;
  const longest = Math.max(...prompts.map((it) => it.length));
  const padding = prompts.map((it) => longest - it.length);
  checkTexts(model, ids, padding, port('attention_mask') !== undefined);
  const rows = prompts.map((it, text) => [...Array<number>(padding[text]!).fill(PADDING), ...it]);
  const texts = new Texts(count, settings.stopTokens, settings.stop);
  const chance = chances(settings.seed);
  const gpu = await model.gpu();
  const sampler = new Sampler(gpu, logits.type === 'float16', ids.type === 'int64', settings, count);
  const caches = new Caches(model, gpu, ports, count, settings.cacheLength);
  let ahead: Promise<Read> | undefined;
  try {
    const mask = port('attention_mask')?.shape[1];
    const room = Math.min(caches.room, typeof mask === 'number' ? mask : Infinity);
    if (settings.limited && settings.maxLength > room) {
      throw model.wrong(`generate: the caches have room for ${room} tokens, and the text may have ${settings.maxLength}`);
    }
    if (longest > room) throw model.wrong(`generate: the caches have room for ${room} tokens, the prompt has ${longest}`);
    const end = Math.min(settings.maxLength, room);
    let fed = 0; // tokens of each text that are in the caches
    // Models that take one token at a time also get the prompt that way.
    const most = ids.shape[1] === 1 ? 1 : Infinity;
    /**
     * Submits the tokens up to `until`, and the sampling of the next token. Without `read` the last token is taken from the
     * sampler.
     */
    const submit = async (until: number, read: boolean): Promise<Read> => {
      const to = Math.min(until, fed + most);
      settings.signal?.throwIfAborted();
      const feeds: Record<string, Fed> = { ...more, ...caches.state };
      const [first, length] = [fed, to - fed];
      const give = (name: string, dims: readonly number[], number: (text: number, column: number) => number): void => {
        const of = port(name);
        if (of && !(name in more)) feeds[name] = integers(of.type, dims, number);
      };
      if (read) give('input_ids', [count, length], (text, k) => rows[text]![first + k]!);
      else feeds['input_ids'] = { dims: [count, 1], buffer: sampler.ids };
      give('position_ids', [count, length], (text, k) => Math.max(0, first + k - padding[text]!));
      give('cache_position', [length], (_, k) => first + k);
      give('attention_mask', [count, typeof mask === 'number' ? mask : to], (text, at) => Number(at >= padding[text]! && at < to));
      const results = await model.run(feeds, { [logits.name]: 'new', ...caches.places }).catch((error: Error) => {
        if (fed || settings.cacheLength === undefined || error.name !== 'InputError') throw error;
        throw model.wrong(`generate: this model cannot update caches of ${settings.cacheLength} tokens in place, leave cacheLength out: ${error.message}`);
      });
      caches.take(results);
      if (ports.size) fed = to;
      if (to < until) return submit(until, read);
      const { dims, buffer } = results[logits.name]!;
      const width = dims.at(-1)!;
      const positions = dims.slice(0, -1).reduce((a, b) => a * b, 1) / count;
      const place = { first: (positions - 1) * width, step: positions * width, count: width };
      return sampler.next(buffer, place, prompts.map(() => chance.next().value));
    };
    const alone = !ports.size || 'input_ids' in more; // each step waits for the tokens of the one before
    for (let total = longest; total < end && !texts.over; total++) {
      const read: Read = await (ahead ?? submit(total, true));
      ahead = undefined;
      if (!alone && total + 1 < end) (ahead = submit(total + 1, false)).catch(() => undefined); // raised when it is awaited
      const tokens = await read();
      settings.signal?.throwIfAborted();
      if (tokens.includes(undefined)) throw model.wrong(`the model gives no numbers for token ${total}: its logits are all NaN`);
      const step = texts.add(tokens);
      rows.forEach((row, text) => row.push(tokens[text]!));
      if (step.some((it) => it !== undefined)) yield step;
    }
  } finally {
    await ahead?.catch(() => undefined); // it uses the buffers that are freed here
    caches.release();
    sampler.release();
  }
}

/** Raises an error if a model cannot take these texts in one run. */
function checkTexts(model: Model, { shape }: Port, padding: readonly number[], masked: boolean): void {
  const [batch, width] = shape;
  if (typeof batch === 'number' && batch !== padding.length) {
    throw model.wrong(`generate: there are ${padding.length} texts, the model takes ${batch} in each run`);
  }
  if (typeof width === 'number' && width !== 1) {
    throw model.wrong(`generate: the model takes ${width} tokens in each run; it has to take any number, or 1`);
  }
  if (padding.every((it) => !it)) return;
  const way = 'generate them one after another, or give them one length';
  if (!masked) throw model.wrong(`generate: the texts have different lengths, and the model has no input 'attention_mask': ${way}`);
  // It counts the mask and assumes that texts begin at the first column.
  if (model.operators.has('GroupQueryAttention')) {
    throw model.wrong(`generate: the texts have different lengths, and GroupQueryAttention has no mask for padding: ${way}`);
  }
}
