// Samples the next token of each text from logits on the GPU. Greedy, or at random from the k most likely tokens (top-k), and of
// these from the most likely ones with a total probability of p (top-p). In: a buffer of logits. Out: tokens, four bytes each to
// read back, and the same on the GPU as the ids of the next run.

import type { Gpu } from '../device.js';
import type { Kernel } from '../program.js';

export interface Sampling {
  /** 0 takes the most likely token. */
  readonly temperature: number;
  /** The number of tokens that are considered, 0 for all. */
  readonly topK: number;
  /** Of these, the most likely ones with this total probability; 1 for all. */
  readonly topP: number;
}

const NONE = 0xffffffff;
const LANES = 256;

// Floats are mapped to integers in the same order. So the k-th largest one, and the one at which probabilities reach p, are
// found bit by bit, without sorting.
const text = (half: boolean, wide: boolean): string => `
struct Params { count: u32, first: u32, step: u32, top_k: u32, top_p: f32, scale: f32 }
@group(0) @binding(0) var<storage, read> logits: array<u32>;
/** What decides is there first, a float from 0 to 1. */
@group(0) @binding(1) var<storage, read_write> token: array<u32>;
/** The tokens as the model takes them. */
@group(0) @binding(2) var<storage, read_write> ids: array<${wide ? 'vec2u' : 'u32'}>;
@group(0) @binding(3) var<uniform> params: Params;
var<workgroup> sums: array<f32, ${LANES}>;
var<workgroup> keys: array<u32, ${LANES}>;
var<workgroup> places: array<u32, ${LANES}>;
var<workgroup> chosen: u32;
var<private> origin: u32;

fn bits(i: u32) -> u32 {
  let at = origin + i;
  ${half ? 'return bitcast<u32>(unpack2x16float(logits[at / 2u])[at % 2u]);' : 'return logits[at];'}
}
/** 0 for NaN, then from the smallest to the largest. */
fn key(i: u32) -> u32 {
  let b = bits(i);
  if ((b & 0x7fffffffu) > 0x7f800000u) { return 0u; }
  return select(b | 0x80000000u, ~b, b >= 0x80000000u);
}
/** No model has a token without a number, so the first one stands in: a loop that reads that there is none ends. */
fn choose(row: u32, chosen: u32) {
  token[row] = chosen;
  let id = select(chosen, 0u, chosen == ${NONE}u);
  ids[row] = ${wide ? 'vec2u(id, 0u)' : 'id'};
}
fn value(k: u32) -> f32 { return bitcast<f32>(select(~k, k & 0x7fffffffu, k >= 0x80000000u)); }
fn total(lane: u32, x: f32) -> f32 {
  sums[lane] = x;
  workgroupBarrier();
  for (var span = ${LANES / 2}u; span > 0u; span /= 2u) {
    if (lane < span) { sums[lane] += sums[lane + span]; }
    workgroupBarrier();
  }
  let sum = workgroupUniformLoad(&sums[0]);
  return sum;
}
/** How likely the tokens with at least this key are together, or how many they are; the likeliest one has 1. */
fn above(lane: u32, least: u32, top: f32, counted: bool) -> f32 {
  var sum = 0.0;
  for (var i = lane; i < params.count; i += ${LANES}u) {
    let k = key(i);
    if (k >= least) { sum += select(exp((value(k) - top) * params.scale), 1.0, counted); }
  }
  return total(lane, sum);
}

@compute @workgroup_size(${LANES})
fn main(@builtin(local_invocation_index) lane: u32, @builtin(workgroup_id) place_of: vec3u) {
  let row = place_of.x;
  origin = params.first + row * params.step;
  var best = 0u;
  var place = ${NONE}u;
  for (var i = lane; i < params.count; i += ${LANES}u) {
    let k = key(i);
    if (k > best) { best = k; place = i; }
  }
  keys[lane] = best;
  places[lane] = place;
  workgroupBarrier();
  for (var span = ${LANES / 2}u; span > 0u; span /= 2u) {
    if (lane < span) {
      let k = keys[lane + span];
      let p = places[lane + span];
      if (k > keys[lane] || (k == keys[lane] && p < places[lane])) { keys[lane] = k; places[lane] = p; }
    }
    workgroupBarrier();
  }
  let largest = workgroupUniformLoad(&keys[0]);
  let likeliest = workgroupUniformLoad(&places[0]);
  if (lane == 0u) { chosen = likeliest; }
  // Greedy; also where all are NaN, or one is infinitely likely.
  if (params.scale == 0.0 || largest == 0u || largest >= 0xff800000u) {
    if (lane == 0u) { choose(row, likeliest); }
    return;
  }
  let top = value(largest);
  var least = 1u;
  if (params.top_k > 0u && params.top_k < params.count) {
    var found = 0u;
    for (var bit = 0x80000000u; bit > 0u; bit /= 2u) {
      if (above(lane, found | bit, top, true) >= f32(params.top_k)) { found |= bit; }
    }
    least = max(found, 1u);
  }
  if (params.top_p < 1.0) {
    let wanted = above(lane, least, top, false) * params.top_p;
    var found = 0u;
    for (var bit = 0x80000000u; bit > 0u; bit /= 2u) {
      let next = found | bit;
      if (next <= largest && above(lane, next, top, false) >= wanted) { found = next; }
    }
    least = max(found, least);
  }
  // Each lane has a run of tokens, so that they stay in order.
  let span = (params.count + ${LANES - 1}u) / ${LANES}u;
  let begin = min(lane * span, params.count);
  let end = min(begin + span, params.count);
  var mine = 0.0;
  for (var i = begin; i < end; i++) {
    let k = key(i);
    if (k >= least) { mine += exp((value(k) - top) * params.scale); }
  }
  workgroupBarrier();
  sums[lane] = mine;
  workgroupBarrier();
  if (lane == 0u) {
    var whole = 0.0;
    for (var l = 0u; l < ${LANES}u; l++) { whole += sums[l]; }
    var rest = whole * bitcast<f32>(token[row]);
    for (var l = 0u; l < ${LANES}u; l++) {
      if (sums[l] > 0.0) {
        let first = min(l * span, params.count);
        if (rest < sums[l]) {
          for (var i = first; i < min(first + span, params.count); i++) {
            let k = key(i);
            if (k >= least) {
              rest -= exp((value(k) - top) * params.scale);
              chosen = i;
              if (rest < 0.0) { break; }
            }
          }
          break;
        }
        rest -= sums[l];
      }
    }
    choose(row, chosen);
  }
}`;

const kernel = (half: boolean, wide: boolean): Kernel => ({
  label: 'sample', wgsl: [text(half, wide)], bindings: ['read', 'read_write', 'read_write'], uniforms: 6,
});

/** Reads back the tokens of a step: undefined where all logits are NaN. */
export type Read = () => Promise<(number | undefined)[]>;

/** The places of the logits in a buffer: those of text k begin at element `first + k * step` and are `count` elements. */
export interface Rows {
  readonly first: number;
  readonly step: number;
  readonly count: number;
}

/** The buffers and the kernel of one generation. */
export class Sampler {
  /** The last tokens in the type of the model's ids: one per text. */
  readonly ids: GPUBuffer;
  readonly #token: GPUBuffer;
  readonly #params: GPUBuffer;
  /** The buffers for steps with unread tokens, and the free ones. */
  readonly #staging: GPUBuffer[] = [];
  readonly #free: GPUBuffer[] = [];
  readonly #kernel: Kernel;
  #pipeline: Promise<GPUComputePipeline> | undefined;
  /** By the buffer of logits. */
  readonly #groups = new WeakMap<GPUBuffer, GPUBindGroup>();

  /** `half`: the logits are f16, otherwise f32. `wide`: the ids are int64, otherwise int32. */
  constructor(
    private readonly gpu: Gpu,
    half: boolean,
    wide: boolean,
    private readonly sampling: Sampling,
    private readonly texts: number,
  ) {
    this.#kernel = kernel(half, wide);
    this.ids = gpu.storage(8 * texts, 'the next tokens as ids');
    this.#token = gpu.storage(4 * texts, 'the next tokens');
    this.#params = gpu.buffer(32, 64 | 8, 'how they are sampled'); // UNIFORM, COPY_DST
  }

  /**
   * Submits the sampling of a token for each text, with `chances` from 0 to 1. Nothing waits for the GPU until the tokens are
   * read.
   */
  async next(logits: GPUBuffer, { first, step, count }: Rows, chances: readonly number[]): Promise<Read> {
    const { gpu } = this;
    const { temperature, topK, topP } = this.sampling;
    const pipeline = await (this.#pipeline ??= gpu.pipeline(this.#kernel, 0));
    const words = new DataView(new ArrayBuffer(32));
    [count, first, step, topK].forEach((word, k) => words.setUint32(4 * k, word, true));
    [topP, temperature ? 1 / temperature : 0].forEach((word, k) => words.setFloat32(16 + 4 * k, word, true));
    gpu.write(this.#params, 0, new Uint8Array(words.buffer));
    gpu.write(this.#token, 0, new Uint8Array(Float32Array.from(chances).buffer));
    const group = this.#groups.get(logits) ?? this.#bound(logits);
    const encoder = gpu.device.createCommandEncoder();
    const pass = encoder.beginComputePass();
    pass.setPipeline(pipeline);
    pass.setBindGroup(0, group);
    pass.dispatchWorkgroups(this.texts);
    pass.end();
    const staging = this.#free.pop() ?? this.#stage();
    encoder.copyBufferToBuffer(this.#token, 0, staging, 0, 4 * this.texts);
    gpu.device.queue.submit([encoder.finish()]);
    return async () => {
      await gpu.map(staging);
      const tokens = Array.from(new Uint32Array(staging.getMappedRange(0, 4 * this.texts)));
      staging.unmap();
      this.#free.push(staging);
      return tokens.map((token) => (token === NONE ? undefined : token));
    };
  }

  #stage(): GPUBuffer {
    const staging = this.gpu.buffer(4 * this.texts, 1 | 8, 'readback'); // MAP_READ, COPY_DST
    this.#staging.push(staging);
    return staging;
  }

  #bound(logits: GPUBuffer): GPUBindGroup {
    const entries = [logits, this.#token, this.ids, this.#params].map((buffer, binding) => ({ binding, resource: { buffer } }));
    const group = this.gpu.device.createBindGroup({ layout: this.gpu.layout([...this.#kernel.bindings, 'uniform']).group, entries });
    this.#groups.set(logits, group);
    return group;
  }

  release(): void {
    for (const buffer of [this.ids, this.#token, this.#params, ...this.#staging]) this.gpu.free(buffer);
  }
}
