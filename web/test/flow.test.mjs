// Models that take several programs: what stays on the device, what callers pass and get, what is said, and what is left behind.

import assert from 'node:assert/strict';
import { after, afterEach, before, beforeEach, describe, test } from 'node:test';
import { assertSame, bytesOf, samples } from './fixtures.mjs';
import { internals, useDawn } from './internals.mjs';

await useDawn();
const { flowOf, leaves, Stacked } = await internals('testing');
const ort = await import('../dist/ort.wgpu.mjs');
const { InferenceSession, Tensor, memory, warmup } = ort;
const open = (name, more = {}) => InferenceSession.create(bytesOf(`${name}.wgpu`), { executionProviders: ['webgpu'], ...more });
const [branch, rounds, found] = ['branch', 'rounds', 'found'].map((it) => samples(ort, it));
let held;
let device;
before(async () => (device = await ort.env.webgpu.device));
beforeEach(() => (held = memory()));
afterEach(() => assert.deepEqual(memory(), held));

/** Counts the calls of a method while `work` runs. */
async function counted(prototype, name, work) {
  const method = prototype[name];
  let calls = 0;
  prototype[name] = function (...args) {
    calls += 1;
    return method.apply(this, args);
  };
  try {
    await work();
  } finally {
    prototype[name] = method;
  }
  return calls;
}

test('room for rounds side by side is for some at first, and for those that a buffer holds', () => {
  const taken = [], encoder = { copyBufferToBuffer() {}, finish() {} }, megabyte = 1 << 20;
  const gpu = {
    limits: { maxBufferSize: 100 * megabyte }, write() {}, device: { createCommandEncoder: () => encoder }, queue: { submit() {} },
  };
  const values = { gpu, take: (bytes) => taken.push(bytes / megabyte), leave() {} };
  const rooms = (size, most, count) => {
    taken.length = 0;
    const rounds = new Stacked(values, { name: 'r', dtype: { bits: 8 }, shape: [] }, most);
    for (let k = 0; k < count; k++) rounds.add({ dims: [size * megabyte], bytes: new Uint8Array(0), holders: 1 });
    return taken.map((it) => it / size);
  };
  assert.deepEqual(rooms(12, 1000, 8), [1, 2, 4, 8]);
  assert.deepEqual(rooms(40, 3, 2), [1, 2]);
  assert.deepEqual(rooms(3, 1000, 33), [5, 10, 20, 33]);
  assert.deepEqual(rooms(1, 10, 10), [10]);
  assert.deepEqual(rooms(60, 1000, 2), [1, 2], 'what no buffer holds is refused where it is made');
});

describe('results', () => {
  for (const [name, all] of [['branch', branch], ['rounds', rounds], ['found', found]]) {
    test(`of ${name}, in memory, on the GPU and where the caller wants them`, async () => {
      const [inMemory, onGpu, kept] = [
        await open(name), await open(name, { preferredOutputLocation: 'gpu-buffer' }),
        await open(name, { preferredOutputLocation: 'gpu-buffer', enableGraphCapture: true }),
      ];
      for (const { feeds, wanted } of [...all, ...all]) {
        for (const session of [inMemory, onGpu, kept]) {
          const results = await session.run(feeds);
          for (const key of Object.keys(wanted)) {
            await assertSame(results[key], wanted[key]);
            if (session === onGpu) results[key].dispose();
          }
        }
        const key = Object.keys(wanted).find((it) => wanted[it].size);
        if (!key) continue;
        const { dims, type, size } = wanted[key];
        const buffer = device.createBuffer({ size: Math.max(16, 8 * size), usage: 128 | 4 | 8 });
        const given = Tensor.fromGpuBuffer(buffer, { dataType: type, dims, download: async () => (await inMemory.run(feeds))[key].data });
        await inMemory.run(feeds, { [key]: given });
        await assert.rejects(inMemory.run(feeds, { [key]: Tensor.fromGpuBuffer(buffer, { dataType: type, dims: [...dims, 1] }) }), /InputError: output '.*' has shape/);
        buffer.destroy();
      }
      for (const it of [inMemory, onGpu, kept]) await it.release();
    });
  }

  test('runs that overlap do not disturb each other', async () => {
    const session = await open('rounds');
    const runs = [...rounds, ...rounds].map(async ({ feeds, wanted }) => {
      const results = await session.run(feeds);
      for (const key of Object.keys(wanted)) await assertSame(results[key], wanted[key]);
    });
    await Promise.all(runs);
    await session.release();
  });

  test('inputs in buffers, and an output that is the next input', async () => {
    const session = await open('rounds', { preferredOutputLocation: 'gpu-buffer' });
    const [{ feeds }] = rounds;
    const first = await session.run(feeds);
    const second = await session.run({ ...feeds, x: first.y });
    const again = await session.run({ ...feeds, x: new Tensor('float32', await first.y.getData(), first.y.dims) });
    assert.deepEqual(await second.y.getData(), await again.y.getData());
    for (const results of [first, second, again]) for (const it of Object.values(results)) it.dispose();
    await session.release();
  });
});

test('rounds whose number is known read nothing back, and repeated ones make no buffer and no bind group', async () => {
  const session = await open('rounds');
  const [{ feeds }] = rounds;
  for (let k = 0; k < 8; k++) await session.run(feeds); // until buffers come round
  assert.equal(await counted(GPUBuffer.prototype, 'mapAsync', () => session.run(feeds)), 1);
  assert.equal(await counted(GPUDevice.prototype, 'createBuffer', () => session.run(feeds)), 0);
  assert.equal(await counted(GPUDevice.prototype, 'createBindGroup', () => session.run(feeds)), 0);
  await session.release();
});

test('release ends a loop that has no end', async () => {
  const session = await open('endless');
  const run = session.run({ x: new Tensor('float32', Float32Array.of(1, 2), [2]) });
  await new Promise((resolve) => setImmediate(resolve)); // the run is under way
  await session.release();
  await assert.rejects(run, /InputError: the session is released/);
});

test('profiles have the dispatches of all parts', async () => {
  const told = [];
  ort.env.webgpu.profiling = { mode: 'default', ondata: (it) => told.push(it) };
  try {
    const session = await open('rounds');
    await session.run(rounds[0].feeds);
    await session.release();
  } finally {
    ort.env.webgpu.profiling = { mode: 'off' };
  }
  if (device.features.has('timestamp-query')) assert(told.length > 3 && told.some((it) => it.kernelType.includes('Add')));
});

test('warmup prepares what the inputs decide', async () => {
  const session = await open('rounds');
  await warmup(session, { x: [2, 3], m: [] });
  await assert.rejects(warmup(session, { x: [2, 3, 1], m: [] }), /rank 3/);
  await session.release();
});

test('inputs of another shape are named', async () => {
  const session = await open('rounds');
  const wrong = { ...rounds[0].feeds, x: new Tensor('float32', new Float32Array(8), [2, 4]) };
  await assert.rejects(session.run(wrong), /InputError: input 'x' has 4 elements along axis 1, the model needs 3/);
  await session.release();
});

describe('damaged parts', () => {
  const leaf = (inputs = 1, outputs = 1, more = {}) => ({
    name: 'leaf', inputs: Array.from({ length: inputs }, (_, k) => k), outputs: Array.from({ length: outputs }, (_, k) => inputs + k),
    values: Array.from({ length: inputs + outputs }, () => ({ storage: 'INPUT', dtype: { name: 'float32' }, shape: [] })),
    dispatches: [1], header: {}, ...more,
  });
  const flow = (parts, programs = [0], named = () => leaf()) => {
    const values = [0, 1, 2].map((k) => ({ name: `v${k}`, storage: k ? 'OUTPUT' : 'INPUT', dtype: { name: 'float32' } }));
    return { name: 'flow', inputs: [0], outputs: [1], values, dispatches: [], header: { parts, programs }, named };
  };
  const run = ['run', [0], [0], [1], 0];
  test('none', () => assert.equal(flowOf(flow([run])).parts.length, 1));
  test('none, of flows that have others in common', () => {
    const twice = [['run', [0], [0], [2], 0], ['run', [0], [2], [1], 0]];
    const named = (number) => (number < 40 ? flow(twice, [number + 1], named) : leaf());
    assert.equal(leaves(flowOf(named(0))).size, 1);
  });
  for (const [what, parts, message, programs, named] of [
    ['no list', 7, /is not an array/],
    ['of another kind', [['walk', [0], [0], [1], 0]], /is not a part/],
    ['with too few programs', [['if', [0], [0], [1], 0]], /is not a part/],
    ['that read what is not made', [['run', [0], [2], [1], 0]], /value 2 is read before it is written/],
    ['that make a value twice', [run, run], /value 1 is written twice/],
    ['that make no value', [['run', [0], [0], [9], 0]], /value 9 is written twice/],
    ['that make no output', [['run', [0], [0], [2], 0]], /an output of 'flow' is not written/],
    ['with other arguments than their program takes', [['run', [0], [0, 0], [1], 0]], /does not fit its programs/],
    ['with more states than there are', [['loop', [0], [-1, -1, 0], [1], 2]], /does not fit its programs/, [0], () => leaf(3, 2)],
    ['with a number of states that is none', [['loop', [0], [-1, -1, 0], [1], '1']], /does not fit its programs/, [0], () => leaf(3, 2)],
    ['with a state that is not given', [['loop', [0], [-1, -1, -1], [1], 1]], /value -1 is read before it is written/, [0], () => leaf(3, 2)],
    ['with values of another type', [run], /does not fit its programs/, [0], () => ({ ...leaf(), values: [{ dtype: { name: 'int8' } }, { dtype: { name: 'float32' } }] })],
    ['with a condition that is no bool', [['if', [0, 0], [0], [1], 0]], /does not fit its programs/, [0], () => leaf(0)],
    ['with a size that is no list', [run], /0,1 are not a list and its shape/, [0], () => leaf(1, 2, { header: { sized: [[0, 1]] } })],
    ['within themselves', [run], /contains itself/, [0], () => flow([run], [0])],
  ]) {
    test(what, () => {
      const made = flow(parts, programs, named);
      assert.throws(() => flowOf(made), message);
    });
  }
});
after(() => assert.deepEqual(memory(), held));
