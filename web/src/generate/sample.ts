// The next token from logits on the GPU: the likeliest one, or one drawn from the likeliest k, of these from the likeliest that
// have a probability of p together. In: a buffer of logits. Out: a token, four bytes to read.

import type { Gpu } from '../device.js';
import type { Kernel } from '../program.js';

export interface Sampling {
  /** 0 takes the likeliest token. */
  readonly temperature: number;
  /** How many tokens are considered, 0 for all. */
  readonly topK: number;
  /** Of these, the likeliest that together have this probability; 1 for all. */
  readonly topP: number;
}

const NONE = 0xffffffff;
const LANES = 256;

// Floats in the order of their bits, so that the k-th largest one, and the one at which probabilities reach p, are found by
// trying bit after bit, without sorting.
const text = (half: boolean): string => `
struct Params { count: u32, first: u32, top_k: u32, top_p: f32, scale: f32, chance: f32 }
@group(0) @binding(0) var<storage, read> logits: array<u32>;
@group(0) @binding(1) var<storage, read_write> token: array<u32>;
@group(0) @binding(2) var<uniform> params: Params;
var<workgroup> sums: array<f32, ${LANES}>;
var<workgroup> keys: array<u32, ${LANES}>;
var<workgroup> places: array<u32, ${LANES}>;
var<workgroup> chosen: u32;

fn bits(i: u32) -> u32 {
  let at = params.first + i;
  ${half ? 'return bitcast<u32>(unpack2x16float(logits[at / 2u])[at % 2u]);' : 'return logits[at];'}
}
/** 0 for NaN, then from the smallest to the largest. */
fn key(i: u32) -> u32 {
  let b = bits(i);
  if ((b & 0x7fffffffu) > 0x7f800000u) { return 0u; }
  return select(b | 0x80000000u, ~b, b >= 0x80000000u);
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
fn main(@builtin(local_invocation_index) lane: u32) {
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
    if (lane == 0u) { token[0] = likeliest; token[1] = 0u; }
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
    var rest = whole * params.chance;
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
    token[0] = chosen;
    token[1] = 0u;
  }
}`;

const kernel = (half: boolean): Kernel => ({
  label: 'sample', wgsl: [text(half)], bindings: ['read', 'read_write'], uniforms: 6,
});

/** Buffers of one generation. */
export class Sampler {
  readonly #token: GPUBuffer;
  readonly #params: GPUBuffer;
  readonly #staging: GPUBuffer;
  /** The layout of Params. */
  readonly #words = new DataView(new ArrayBuffer(32));

  constructor(
    private readonly gpu: Gpu,
    private readonly half: boolean,
    private readonly sampling: Sampling,
  ) {
    this.#token = gpu.storage(16, 'the next token');
    this.#params = gpu.buffer(32, 64 | 8, 'how it is sampled'); // UNIFORM, COPY_DST
    this.#staging = gpu.buffer(16, 1 | 8, 'readback'); // MAP_READ, COPY_DST
  }

  /**
   * The token of the `count` logits from element `first` on; `chance` from 0 to 1 decides. Undefined when no logit is a number.
   */
  async next(logits: GPUBuffer, first: number, count: number, chance: number): Promise<number | undefined> {
    const { gpu } = this;
    const { temperature, topK, topP } = this.sampling;
    const it = kernel(this.half);
    const pipeline = await gpu.pipeline(it, 0);
    [count, first, topK].forEach((word, k) => this.#words.setUint32(4 * k, word, true));
    [topP, temperature ? 1 / temperature : 0, chance].forEach((word, k) => this.#words.setFloat32(12 + 4 * k, word, true));
    gpu.write(this.#params, 0, new Uint8Array(this.#words.buffer));
    const buffers = [logits, this.#token, this.#params];
    const entries = buffers.map((buffer, binding) => ({ binding, resource: { buffer } }));
    const layout = gpu.layout([...it.bindings, 'uniform']).group;
    const encoder = gpu.device.createCommandEncoder();
    const pass = encoder.beginComputePass();
    pass.setPipeline(pipeline);
    pass.setBindGroup(0, gpu.device.createBindGroup({ layout, entries }));
    pass.dispatchWorkgroups(1);
    pass.end();
    encoder.copyBufferToBuffer(this.#token, 0, this.#staging, 0, 16);
    gpu.device.queue.submit([encoder.finish()]);
    await gpu.map(this.#staging);
    const [token] = new Uint32Array(this.#staging.getMappedRange(0, 16));
    this.#staging.unmap();
    return token === NONE ? undefined : token;
  }

  release(): void {
    for (const buffer of [this.#token, this.#params, this.#staging]) this.gpu.free(buffer);
  }
}
