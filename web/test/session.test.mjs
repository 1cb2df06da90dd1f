// What people rely on about sessions: the same results as the CPU provider, whatever the tensors are and wherever they lie,
// and nothing left on the device.

import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { assertSame, bytesOf, samples, serve } from './fixtures.mjs';
import { useDawn } from './internals.mjs';

await useDawn();
const ort = await import('../dist/ort.wgpu.mjs');
const { InferenceSession, Tensor, env, memory, warmup } = ort;
const GPU = { preferredOutputLocation: 'gpu-buffer' };
let server;
before(async () => (server = await serve()));
after(() => server.close());

const create = (name, options = {}) =>
  InferenceSession.create(bytesOf(`${name}.wgpu`), { executionProviders: ['webgpu'], ...options });

/** Runs `use` on a session and asserts that nothing of it stays on the device. */
async function withSession(name, options, use) {
  const held = memory();
  const session = await create(name, options);
  try {
    await use(session);
  } finally {
    await session.release();
  }
  assert.deepEqual(memory(), held);
}

const device = async () => env.webgpu.device;

/** How often `run` calls each method of WebGPU, and how many microtasks it takes. */
async function counted(run) {
  const gpu = await device();
  const encoder = gpu.createCommandEncoder();
  const objects = [gpu, gpu.queue, encoder, encoder.beginComputePass()];
  const calls = {};
  const restore = objects.map(Object.getPrototypeOf).flatMap((type) => {
    const methods = Object.entries(Object.getOwnPropertyDescriptors(type)).filter(([name, it]) => name !== 'constructor' && typeof it.value === 'function');
    return methods.map(([name, it]) => {
      type[name] = function (...given) {
        calls[name] = (calls[name] ?? 0) + 1;
        return it.value.apply(this, given);
      };
      return () => Object.defineProperty(type, name, it);
    });
  });
  try {
    let done = false;
    const running = run().finally(() => (done = true));
    let steps = 0;
    for (; !done && steps < 100; steps++) await null;
    await running;
    return { calls, steps };
  } finally {
    for (const it of restore) it();
  }
}

async function onGpu(tensor, size = Math.ceil(tensor.data.byteLength / 16) * 16) {
  const buffer = (await device()).createBuffer({ size, usage: GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST });
  const bytes = new Uint8Array(size);
  bytes.set(new Uint8Array(tensor.data.buffer, tensor.data.byteOffset, tensor.data.byteLength));
  (await device()).queue.writeBuffer(buffer, 0, bytes);
  return Tensor.fromGpuBuffer(buffer, { dataType: tensor.type, dims: tensor.dims });
}

async function read(buffer, bytes) {
  const to = (await device()).createBuffer({ size: buffer.size, usage: GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST });
  const encoder = (await device()).createCommandEncoder();
  encoder.copyBufferToBuffer(buffer, 0, to, 0, buffer.size);
  (await device()).queue.submit([encoder.finish()]);
  await to.mapAsync(1);
  return to.getMappedRange().slice(0, bytes);
}

describe('results are those of the CPU provider', () => {
  for (const name of ['tiny', 'types', 'numbers', 'half', 'elements', 'listed', 'chunks', 'conv', 'growing', 'chain', 'state', 'apart']) {
    test(`${name}, of bytes`, () =>
      withSession(name, {}, async (session) => {
        for (let time = 0; time < 2; time++) {
          for (const { feeds, wanted } of samples(ort, name)) {
            const results = await session.run(feeds);
            assert.deepEqual(Object.keys(results), session.outputNames);
            for (const output of session.outputNames) await assertSame(results[output], wanted[output]);
          }
        }
      }));
    test(`${name}, of an address`, async () => {
      const [{ feeds, wanted }] = samples(ort, name);
      const session = await InferenceSession.create(`${server.url}${name}.onnx`, { executionProviders: ['webgpu'] });
      const results = await session.run(feeds);
      for (const output of session.outputNames) await assertSame(results[output], wanted[output]);
      await session.release();
    });
  }
});

test('results without elements share a buffer of the session, which need not be disposed of and can be inputs', () =>
  withSession('types', GPU, async (session) => {
    const none = { a: new Tensor('int64', new BigInt64Array(0), [0]) };
    const [{ feeds, wanted }] = samples(ort, 'types');
    const counts = [];
    for (let time = 0; time < 4; time++) {
      const { sum } = await session.run(none);
      assert.deepEqual([sum.location, [...sum.dims], (await sum.getData()).length], ['gpu-buffer', [0], 0]);
      const again = await session.run({ a: (await session.run(none)).sum });
      again.sum.dispose();
      assert.deepEqual([...(await session.run(none)).sum.dims], [0]);
      counts.push(ort.memory().buffers);
    }
    assert.equal(counts[3], counts[1]);
    const results = await session.run(feeds);
    for (const [name, it] of Object.entries(wanted)) {
      await assertSame({ ...results[name], type: it.type, dims: it.dims, getData: () => results[name].getData() }, it);
      results[name].dispose();
    }
  }));

describe('types that few libraries have', () => {
  const unread = () => ({ text: new Tensor('string', ['a', 'b'], [2]), double: new Tensor('float64', new Float64Array(2), [2]) });

  test('elements that share bytes, bits of floats, and inputs that nothing reads', () =>
    withSession('narrow', {}, async (session) => {
      const types = Object.fromEntries(session.inputMetadata.map(({ name, type }) => [name, type]));
      assert.deepEqual(types, {
        x_int4: 'int4', x_uint4: 'uint4', x_bfloat16: 'uint16', x_float8e4m3fn: 'uint8', x_float8e5m2: 'uint8', text: 'string', double: 'float64',
      });
      for (const { feeds, wanted } of samples(ort, 'narrow')) {
        const results = await session.run({ ...feeds, ...unread() });
        for (const output of session.outputNames) {
          assert.deepEqual([results[output].type, [...results[output].dims]], [wanted[output].type, [...wanted[output].dims]]);
          assert.deepEqual(results[output].data, wanted[output].data, output);
        }
      }
    }));

  test('on the GPU, where onnxruntime-common has tensors of the type', () =>
    withSession('narrow', { preferredOutputLocation: { y_int4: 'gpu-buffer', y_uint4: 'gpu-buffer', y_float8e5m2: 'gpu-buffer' } }, async (session) => {
      const [{ feeds, wanted }] = samples(ort, 'narrow');
      const x_int4 = await onGpu(feeds.x_int4);
      const results = await session.run({ ...feeds, ...unread(), x_int4 });
      for (const output of ['y_int4', 'y_uint4', 'y_float8e5m2']) {
        assert.equal(results[output].location, 'gpu-buffer');
        assert.deepEqual(await results[output].getData(), wanted[output].data, output);
        results[output].dispose();
      }
    }));

  test('elements that have a byte each where two share one', () =>
    withSession('narrow', {}, async (session) => {
      const [{ feeds }] = samples(ort, 'narrow');
      const x_int4 = new Tensor('int4', new Uint8Array(5), [5]);
      await assert.rejects(session.run({ ...feeds, ...unread(), x_int4 }), { name: 'InputError', message: /'x_int4' has 5 bytes, 5 elements of int4 take 3: two share a byte/ });
      const x_bfloat16 = new Tensor('float32', new Float32Array(5), [5]);
      await assert.rejects(session.run({ ...feeds, ...unread(), x_bfloat16 }), /'x_bfloat16' is float32, the model needs bfloat16, as the bits of uint16/);
    }));

  test('what no tensor carries, or none on the GPU, is said by name when the session is made', async () => {
    const held = memory();
    await assert.rejects(create('unfed'), { name: 'OptionError', message: /'x' is int2, which onnxruntime-common has no tensors of: begin the model with a Cast/ });
    await assert.rejects(create('narrow', GPU), { name: 'OptionError', message: /'y_bfloat16' is 'gpu-buffer', where onnxruntime-common has no tensors of bfloat16/ });
    await assert.rejects(create('numbers', GPU), { name: 'OptionError', message: /'y_\w+' is 'gpu-buffer', where .* no tensors of u?int\d+: choose by output, with 'cpu'/ });
    assert.deepEqual(memory(), held);
  });
});

test('names, types and shapes of inputs and outputs', () =>
  withSession('tiny', { freeDimensionOverrides: { batch: 2 } }, async (session) => {
    assert.deepEqual(session.inputMetadata, [{ name: 'x', isTensor: true, type: 'float32', shape: [2, 3, 'height', 'width'] }]);
    assert.deepEqual(session.outputMetadata, [{ name: 'y', isTensor: true, type: 'float32', shape: [2, 4] }]);
  }));

test('some outputs by name, and an output in a tensor that the caller passes', () =>
  withSession('types', {}, async (session) => {
    const [{ feeds, wanted }] = samples(ort, 'types');
    const some = await session.run(feeds, ['negative']);
    assert.deepEqual(Object.keys(some), ['negative']);
    await assertSame(some.negative, wanted.negative);
    const mine = new Tensor('int64', new BigInt64Array(5), [5]);
    const results = await session.run(feeds, { sum: mine, float: null });
    assert.equal(results.sum, mine);
    await assertSame(mine, wanted.sum);
    await assertSame(results.float, wanted.float);
    await assert.rejects(session.run(feeds, { sum: new Tensor('int64', new BigInt64Array(4), [4]) }), /'sum' has shape \[5\].*\[4\]/);
    await assert.rejects(session.run(feeds, { sum: new Tensor('int32', new Int32Array(5), [5]) }), /'sum' is int64/);
  }));

describe('tensors on the GPU', () => {
  test('inputs and outputs in buffers of the caller, also ones without room to spare', () =>
    withSession('types', {}, async (session) => {
      const [{ feeds, wanted }] = samples(ort, 'types');
      for (const size of [40, 48, 256]) {
        const a = await onGpu(feeds.a, size);
        const sum = await onGpu(new Tensor('int64', new BigInt64Array(5), [5]), size);
        const negative = await onGpu(new Tensor('bool', new Uint8Array(5), [5]), 8);
        const results = await session.run({ a }, { sum, negative });
        assert.equal(results.sum, sum);
        assert.deepEqual(new BigInt64Array(await read(sum.gpuBuffer, 40)), wanted.sum.data);
        assert.deepEqual(new Uint8Array(await read(negative.gpuBuffer, 5)), wanted.negative.data);
      }
    }));

  test('results stay there, are read with getData and freed with dispose', () =>
    withSession('types', { preferredOutputLocation: { sum: 'gpu-buffer', negative: 'cpu', float: 'gpu-buffer' } }, async (session) => {
      const [{ feeds, wanted }] = samples(ort, 'types');
      const results = await session.run(feeds);
      assert.deepEqual([results.sum.location, results.negative.location], ['gpu-buffer', 'cpu']);
      const { gpuBuffer } = results.float;
      results.float.dispose();
      await assertSame(results.sum, wanted.sum);
      const again = await session.run(feeds);
      assert([again.float.gpuBuffer, again.sum.gpuBuffer].includes(gpuBuffer)); // a freed buffer is used again
      for (const it of [results.sum, again.sum, again.float]) it.dispose();
    }));

  test('a result that outlives its session is freed with it', async () => {
    const held = memory();
    const session = await create('state', GPU);
    const [{ feeds, wanted }] = samples(ort, 'state');
    const { next, total } = await session.run(feeds);
    await session.release();
    assert.equal(memory().buffers, held.buffers + 2);
    await assertSame(next, wanted.next);
    next.dispose();
    total.dispose();
    assert.deepEqual(memory(), held);
  });

  test('a state goes round without leaving the GPU', () =>
    withSession('state', { preferredOutputLocation: { next: 'gpu-buffer' } }, async (session) => {
      let [{ feeds: { state } }] = samples(ort, 'state');
      for (let step = 1; step <= 6; step++) {
        const { next, total } = await session.run({ state });
        if (step > 1) state.dispose();
        assert.equal(total.data[0], 6 * 2 ** step);
        state = next;
      }
      state.dispose();
    }));

  describe('that stay in place', () => {
    const KEPT = { ...GPU, enableGraphCapture: true };
    // getData() would make it a tensor in memory.
    const copied = async ({ gpuBuffer, size, dims }) => new Tensor('float32', new Float32Array(await read(gpuBuffer, 4 * size)), [...dims]);
    const of = (k, sizes) => Object.fromEntries(Object.entries(sizes).map(([name, n]) =>
      [name, new Tensor('float32', Float32Array.from({ length: n }, (_, i) => Math.sin(i * k)), [n])]));

    test('runs of other shapes read them and leave them as they are', () =>
      withSession('apart', KEPT, async (session) => {
        const sizes = [1, 5, 64, 1000];
        for (const [k, size] of sizes.entries()) {
          const { y } = await session.run(of(k + 1, { a: 1000, b: size, c: 1000 }));
          const before = await copied(y);
          for (const a of sizes) {
            const feeds = of(k + 7, { a, b: 7 });
            const expected = await copied((await session.run({ ...feeds, c: before })).z);
            await session.run(of(k + 8, { a, b: 7, c: size })); // other numbers in between
            await assertSame((await session.run({ ...feeds, c: y })).z, expected);
            await assertSame(await copied(y), before);
          }
        }
      }));

    test('they are the same after more shapes than are kept', () =>
      withSession('apart', KEPT, async (session) => {
        const [{ feeds, wanted }] = samples(ort, 'apart');
        const first = await session.run(feeds);
        for (let n = 1; n <= 80; n++) await session.run(of(n, { a: n, b: 3, c: 2 * n }));
        for (const name of session.outputNames) await assertSame(await copied(first[name]), wanted[name]);
        const again = await session.run(feeds);
        for (const name of session.outputNames) assert.equal(again[name].gpuBuffer, first[name].gpuBuffer);
      }));

    test('inputs of runs, whichever outputs are asked for', () =>
      withSession('apart', KEPT, async (session) => {
        const names = session.outputNames;
        for (const from of names) {
          for (const into of session.inputNames) {
            for (let asked = 1; asked < 2 ** names.length; asked++) {
              const feeds = of(asked, { a: 64, b: 64, c: 64 });
              const given = (await session.run(feeds))[from];
              const fetches = names.filter((_, k) => (asked >> k) & 1);
              const same = await copied(given);
              const found = await session.run({ ...feeds, [into]: given }, fetches);
              const data = await Promise.all(fetches.map((it) => copied(found[it])));
              const expected = await session.run({ ...feeds, [into]: same }, fetches);
              for (const [k, it] of fetches.entries()) await assertSame(data[k], await copied(expected[it]));
            }
          }
        }
      }));
  });

  test('one buffer as input and output', () =>
    withSession('state', {}, async (session) => {
      const [{ feeds, wanted }] = samples(ort, 'state');
      const state = await onGpu(feeds.state);
      await session.run({ state }, { next: state });
      assert.deepEqual(new Float32Array(await read(state.gpuBuffer, 16)), wanted.next.data);
      await assert.rejects(session.run({ state }, { next: state, total: Tensor.fromGpuBuffer(state.gpuBuffer, { dims: [] }) }), /into one buffer/);
    }));

  test('an input whose memory went elsewhere', () =>
    withSession('tiny', {}, async (session) => {
      const [{ feeds: { x } }] = samples(ort, 'tiny');
      const bytes = x.data.byteLength;
      structuredClone(x.data.buffer, { transfer: [x.data.buffer] });
      await assert.rejects(session.run({ x }), new RegExp(`^InputError: input 'x' has 0 bytes, \\d+ elements of float32 take ${bytes}: was its memory transferred elsewhere\\?$`));
    }));

  test('a buffer that is too small, or of another type', () =>
    withSession('types', {}, async (session) => {
      const [{ feeds }] = samples(ort, 'types');
      const small = Tensor.fromGpuBuffer((await onGpu(feeds.a)).gpuBuffer, { dataType: 'int64', dims: [9] });
      await assert.rejects(session.run({ a: small }), /'a' takes 72 bytes, its buffer has 48/);
      await assert.rejects(session.run({ a: Tensor.fromGpuBuffer(small.gpuBuffer, { dims: [5] }) }), /'a' is float32, the model needs int64/);
    }));

  test('a destroyed buffer is told whenever results are read, also one that was bound before', () =>
    withSession('types', {}, async (session) => {
      const [{ feeds, wanted }] = samples(ort, 'types');
      const into = async () => ({ float: await onGpu(wanted.float), sum: null });
      for (const [inputs, fetches] of [[{ a: await onGpu(feeds.a) }, {}], [feeds, await into()]]) {
        await assertSame((await session.run(inputs, fetches)).sum, wanted.sum);
        [inputs.a, fetches.float].find((it) => it?.location === 'gpu-buffer').gpuBuffer.destroy();
        for (let time = 0; time < 2; time++) {
          await assert.rejects(session.run(inputs, fetches), /^DeviceError: the run is refused by the device: .*destroyed/);
        }
      }
      await assertSame((await session.run(feeds)).sum, wanted.sum);
    }));

  test('integers in a buffer set a shape', () =>
    withSession('elements', {}, async (session) => {
      for (const { feeds, wanted } of samples(ort, 'elements')) {
        await assertSame((await session.run({ ...feeds, shape: await onGpu(feeds.shape) })).y, wanted.y);
      }
    }));
});

describe('replaying', () => {
  test('a run with the same buffers binds nothing, compiles nothing and makes no buffer', () =>
    withSession('tiny', { ...GPU, enableGraphCapture: true }, async (session) => {
      const [{ feeds, wanted }, { feeds: others, wanted: more }] = samples(ort, 'tiny');
      const x = await onGpu(feeds.x);
      const first = await session.run({ x });
      const made = [];
      const gpu = await device();
      for (const call of ['createBindGroup', 'createBuffer', 'createComputePipelineAsync', 'createShaderModule']) {
        const plain = gpu[call];
        gpu[call] = (...given) => (made.push(call), plain.apply(gpu, given));
      }
      const second = await session.run({ x });
      const third = await session.run({ x });
      for (const call of ['createBindGroup', 'createBuffer', 'createComputePipelineAsync', 'createShaderModule']) delete gpu[call];
      assert.deepEqual(made, []);
      assert.equal(second.y.gpuBuffer, first.y.gpuBuffer);
      await assertSame(third.y, wanted.y);
      // Other buffers and shapes are bound anew: never stale.
      await assertSame((await session.run({ x: await onGpu(others.x) })).y, more.y);
      await assertSame((await session.run(feeds)).y, wanted.y);
    }));

  test('a run with the same buffers only encodes, and is done without waiting', async () => {
    for (const options of [GPU, { ...GPU, enableGraphCapture: true }]) {
      await withSession('conv', options, async (session) => {
        const [{ feeds }] = samples(ort, 'conv');
        const x = await onGpu(feeds.x);
        const fetches = options.enableGraphCapture ? {} : { y: (await session.run({ x })).y };
        await session.run({ x }, fetches);
        const { calls, steps } = await counted(() => session.run({ x }, fetches));
        const { createCommandEncoder, beginComputePass, setPipeline, setBindGroup, dispatchWorkgroups, end, finish, submit, ...others } = calls;
        assert.deepEqual(others, {});
        assert.deepEqual([createCommandEncoder, beginComputePass, end, finish, submit], [1, 1, 1, 1, 1]);
        assert(setBindGroup === dispatchWorkgroups && setPipeline <= dispatchWorkgroups, JSON.stringify(calls));
        // Two of onnxruntime-common's, two of ours: a promise each that the caller's is made of.
        assert(steps <= 4, `${steps} steps`);
        fetches.y?.dispose();
      });
    }
  });

  test('a pipeline is set where it is another than before', () =>
    withSession('chain', {}, async (session) => {
      const [{ feeds, wanted }] = samples(ort, 'chain');
      for (let time = 0; time < 3; time++) {
        const { calls } = await counted(async () => assertSame((await session.run(feeds)).y, wanted.y));
        assert.deepEqual([calls.setPipeline, calls.setBindGroup, calls.dispatchWorkgroups], [1, 5, 5]);
      }
    }));

  test('inputs in memory and results in memory take a write and a copy each, and one buffer to read', () =>
    withSession('types', {}, async (session) => {
      const [{ feeds, wanted }] = samples(ort, 'types');
      await session.run(feeds);
      let results;
      const { calls } = await counted(async () => (results = await session.run(feeds)));
      for (const name of Object.keys(wanted)) await assertSame(results[name], wanted[name]);
      const { writeBuffer, copyBufferToBuffer, submit, createCommandEncoder, createBindGroup, createBuffer } = calls;
      assert.deepEqual([writeBuffer, copyBufferToBuffer, submit, createCommandEncoder], [1, 3, 1, 1]);
      assert.deepEqual([createBindGroup, createBuffer], [undefined, undefined]);
    }));

  test('the last sets of buffers are kept in any order, and never taken for each other', () =>
    withSession('tiny', {}, async (session) => {
      const [first, second] = samples(ort, 'tiny');
      const size = (it) => Math.ceil(it.data.byteLength / 16) * 16;
      const sets = await Promise.all(Array.from({ length: 10 }, async (_, k) => {
        const { feeds, wanted } = k % 2 ? second : first;
        const scaled = new Tensor('float32', feeds.x.data.map((it) => it * (k > 1 ? k : 1)), feeds.x.dims);
        const [{ y }, x] = [await session.run({ x: scaled }), await onGpu(scaled)];
        if (k < 2) await assertSame(y, wanted.y);
        return { x, expected: y, into: k % 3 ? undefined : await onGpu(new Tensor('float32', new Float32Array(size(y) / 4), [size(y) / 4])) };
      }));
      for (const k of [0, 1, 2, 3, 0, 2, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0, 0, 1, 9]) {
        const { x, expected, into } = sets[k];
        const y = into && Tensor.fromGpuBuffer(into.gpuBuffer, { dataType: 'float32', dims: expected.dims });
        const found = (await session.run({ x }, y ? { y } : {})).y;
        await assertSame(y ? new Tensor('float32', new Float32Array(await read(y.gpuBuffer, 4 * expected.size)), expected.dims) : found, expected);
        // The same buffers, said to be of another shape, are told every time.
        if (y) await assert.rejects(session.run({ x }, { y: Tensor.fromGpuBuffer(into.gpuBuffer, { dataType: 'float32', dims: [1] }) }), /has shape/);
      }
    }));

  /** Counts what is compiled on a device while `use` runs, and how much of it at once. `settled` waits until no more begins. */
  async function compiling(gpu, use) {
    const plain = gpu.createComputePipelineAsync;
    const seen = { count: 0, most: 0 };
    const pending = new Set();
    gpu.createComputePipelineAsync = (...given) => {
      const made = plain.apply(gpu, given);
      const done = made.finally(() => pending.delete(done)).catch(() => undefined);
      pending.add(done);
      seen.count += 1;
      seen.most = Math.max(seen.most, pending.size);
      return made;
    };
    const settled = async () => {
      while (pending.size) {
        await Promise.all(pending);
        await new Promise(setImmediate); // the next one begins
      }
    };
    try {
      await use(seen, settled);
    } finally {
      delete gpu.createComputePipelineAsync;
    }
  }

  test('a sequence that grows compiles nothing behind the third step', async () => {
    const own = await (await navigator.gpu.requestAdapter()).requestDevice(); // compiled kernels stay with a device
    await compiling(own, async (seen, settled) => {
      const session = await create('growing', { executionProviders: [{ name: 'webgpu', device: own }] });
      const all = samples(ort, 'growing');
      await assertSame((await session.run(all[0].feeds)).y, all[0].wanted.y);
      await settled();
      for (const { feeds, wanted } of all.slice(1, 3)) await assertSame((await session.run(feeds)).y, wanted.y);
      await settled();
      const before = seen.count;
      for (const { feeds, wanted } of all.slice(3, -1)) await assertSame((await session.run(feeds)).y, wanted.y);
      assert.equal(seen.count, before);
      await session.release();
    });
    own.destroy();
  });

  test('a shape waits for no kernel that only others need', async () => {
    // A device of its own, because compiled kernels stay with one; `wait(code)` gives kernels that are never ready.
    const fresh = async (wait) => {
      const own = await (await navigator.gpu.requestAdapter()).requestDevice();
      const texts = new Map();
      const asked = [];
      const plain = { module: own.createShaderModule, pipeline: own.createComputePipelineAsync };
      own.createShaderModule = (it) => {
        const module = plain.module.call(own, it);
        texts.set(module, it.code);
        return module;
      };
      own.createComputePipelineAsync = (it) => {
        const code = texts.get(it.compute.module);
        asked.push(code);
        return wait(code) ? new Promise(() => undefined) : plain.pipeline.call(own, it);
      };
      const session = await create('growing', { executionProviders: [{ name: 'webgpu', device: own }] });
      return { session, asked, own };
    };
    // Of one element more, which is as a sequence grows, and of others.
    const [first, second, third] = [0, 1, -1].map((it) => samples(ort, 'growing').at(it));
    const alone = await fresh(() => false);
    await alone.session.run(third.feeds);
    const needed = new Set(alone.asked);
    let later = false;
    const both = await fresh((code) => later && !needed.has(code));
    for (const { feeds } of [first, second]) await both.session.run(feeds);
    later = true;
    await assertSame((await both.session.run(third.feeds)).y, third.wanted.y);
    assert(both.asked.some((code) => !needed.has(code)), 'this model has no kernel that only other shapes need');
    for (const { session, own } of [alone, both]) {
      await session.release();
      own.destroy();
    }
  });

  test('many inputs in one run, as many as there are, compile nothing more when all is compiled', () =>
    withSession('tiny', {}, async (session) =>
      compiling(await device(), async (seen, settled) => {
        const all = samples(ort, 'tiny');
        const one = all[0].feeds.x.data.length;
        let before;
        for (const [step, count] of [1, 2, 7, 3, 16, 5, 1].entries()) {
          const x = new Float32Array(count * one);
          for (let k = 0; k < count; k++) x.set(all[0].feeds.x.data, k * one);
          const { y } = await session.run({ x: new Tensor('float32', x, [count, ...all[0].feeds.x.dims.slice(1)]) });
          const width = y.data.length / count;
          for (let k = 0; k < count; k++) await assertSame(new Tensor('float32', y.data.slice(k * width, (k + 1) * width), [1, width]), all[0].wanted.y);
          if (step === 4) before = (await settled(), seen.count);
        }
        assert.equal(seen.count, before);
      })));

  test('after a warmup a run compiles nothing', () =>
    withSession('elements', {}, async (session) => {
      const [{ feeds, wanted }] = samples(ort, 'elements');
      await warmup(session, { x: [3, 1], shape: feeds.shape });
      await assert.rejects(warmup(session, { x: [3, 1] }), /'shape' set shapes: pass a tensor/);
      await assert.rejects(warmup(session, { shape: feeds.shape }), /'x' has free dimensions: give its shape/);
      for (const extent of [1.5, -1, NaN, '3']) {
        await assert.rejects(warmup(session, { x: [extent, 1], shape: feeds.shape }), { name: 'InputError', message: /'x' cannot have the shape \[.*, 1\]/ });
      }
      const gpu = await device();
      const plain = gpu.createComputePipelineAsync;
      gpu.createComputePipelineAsync = () => assert.fail('compiled');
      await assertSame((await session.run(feeds)).y, wanted.y);
      gpu.createComputePipelineAsync = plain;
    }));

  test('runs that overlap have results of their own', () =>
    withSession('tiny', {}, async (session) => {
      const all = samples(ort, 'tiny');
      const runs = [...all, ...all, ...all];
      const results = await Promise.all(runs.map(({ feeds }) => session.run(feeds)));
      for (const [k, { wanted }] of runs.entries()) await assertSame(results[k].y, wanted.y);
    }));

  test('shapes are those of the call, whatever becomes of the arrays', () =>
    withSession('apart', {}, async (session) => {
      const [{ feeds, wanted }, { feeds: others, wanted: more }] = samples(ort, 'apart');
      const changed = Object.fromEntries(Object.entries(feeds).map(([name, it]) => [name, new Tensor('float32', it.data, [...it.dims])]));
      const running = session.run(changed);
      for (const [name, it] of Object.entries(changed)) it.dims[0] = others[name].dims[0];
      for (const [inputs, expected] of [[undefined, wanted], [others, more], [feeds, wanted], [feeds, wanted]]) {
        const results = await (inputs ? session.run(inputs) : running);
        for (const name of session.outputNames) {
          await assertSame(results[name], expected[name]);
          results[name].dims.unshift(1);
        }
      }
    }));

  test('overlapping runs of more shapes than are kept', () =>
    withSession('apart', {}, async (session) => {
      let next = 1;
      const ones = (n) => new Tensor('float32', new Float32Array(n).fill(1), [n]);
      const worker = async () => {
        while (next <= 300) {
          const n = next++ * 61;
          const { u } = await session.run({ a: ones(n), b: ones(5), c: ones(7) });
          assert(u.size === n && Math.abs(u.data[n - 1] * n - 1) < 1e-3, `${u.data[n - 1]}, not 1/${n}`);
        }
      };
      await Promise.all(Array.from({ length: 8 }, worker));
      // All at once, twice: none waits for those that take its place.
      const sizes = Array.from({ length: 80 }, (_, k) => 1 + (k % 40));
      const results = await Promise.all(sizes.map((n) => session.run({ a: ones(n), b: ones(5), c: ones(7) })));
      for (const [k, n] of sizes.entries()) assert(Math.abs(results[k].u.data[n - 1] * n - 1) < 1e-3);
    }));

  test('shapes that the device refuses keep no buffers of others', () =>
    withSession('types', {}, async (session) => {
      const warm = (n) => warmup(session, { a: [n] });
      for (let n = 1; n <= 40; n++) await warm(n);
      const held = memory().buffers;
      const { maxBufferSize } = (await device()).limits;
      for (let n = 41; n <= 60; n++) {
        await Promise.all([assert.rejects(warm(maxBufferSize / 8 + n), /LimitError: .* this device allows/), warm(n - 1)]);
        await warm(n);
      }
      assert(memory().buffers <= held, `${memory().buffers} buffers, ${held} before`);
    }));

  test('a warmup of as many shapes as are kept leaves the one in use', () =>
    withSession('apart', {}, async (session) => {
      const [{ feeds, wanted }] = samples(ort, 'apart');
      for (let time = 0; time < 2; time++) await session.run(feeds);
      for (let n = 1; n <= 40; n++) await warmup(session, { a: [n], b: [3], c: [3] });
      let results;
      const { calls } = await counted(async () => (results = await session.run(feeds)));
      for (const name of session.outputNames) await assertSame(results[name], wanted[name]);
      assert.deepEqual([calls.createBuffer, calls.createBindGroup], [undefined, undefined]);
    }));

  test('more shapes than are kept give back their buffers', () =>
    withSession('types', {}, async (session) => {
      const run = (n) => session.run({ a: new Tensor('int64', new BigInt64Array(n), [n]) });
      for (let n = 1; n <= 40; n++) await run(n);
      const held = memory().buffers;
      for (let n = 41; n <= 80; n++) await run(n);
      assert(memory().buffers <= held, `${memory().buffers} buffers, ${held} before`);
    }));
});

describe('ends', () => {
  test('a released session does not run, and releasing it twice is harmless', async () => {
    const session = await create('tiny');
    const [{ feeds }] = samples(ort, 'tiny');
    await session.run(feeds);
    await session.release();
    await session.release();
    await assert.rejects(session.run(feeds), /released/);
  });

  test('a lost device is an error of its runs; the next run has a new one', () =>
    withSession('chunks', {}, async (session) => {
      const [{ feeds, wanted }] = samples(ort, 'chunks');
      const lost = await device();
      await assertSame((await session.run(feeds)).y, wanted.y);
      const x = await onGpu(feeds.x);
      lost.destroy();
      await lost.lost;
      await assertSame((await session.run(feeds)).y, wanted.y);
      assert.notEqual(await device(), lost);
      await assert.rejects(session.run({ x }), /refused by the device/);
      await assertSame((await session.run(feeds)).y, wanted.y);
    }));

  test('two sessions share a device and its kernels', async () => {
    const first = await create('tiny');
    const gpu = await device();
    const plain = gpu.createComputePipelineAsync;
    const [{ feeds, wanted }] = samples(ort, 'tiny');
    await first.run(feeds);
    gpu.createComputePipelineAsync = () => assert.fail('compiled');
    const second = await create('tiny');
    await assertSame((await second.run(feeds)).y, wanted.y);
    gpu.createComputePipelineAsync = plain;
    await first.release();
    await assertSame((await second.run(feeds)).y, wanted.y);
    await second.release();
  });
});

test('options of WebAssembly are none of WebGPU', () =>
  withSession('tiny', { executionProviders: ['webgpu', { name: 'wasm', model: 'model.onnx' }] }, async (session) => {
    assert.deepEqual(session.inputNames, ['x']);
  }));

test('a device of the caller', async () => {
  const adapter = await navigator.gpu.requestAdapter();
  const mine = await adapter.requestDevice();
  const session = await create('state', { executionProviders: [{ name: 'webgpu', device: mine }], ...GPU });
  const { next, total } = await session.run(samples(ort, 'state')[0].feeds);
  await assertSame(next, samples(ort, 'state')[0].wanted.next);
  for (const it of [next, total]) it.dispose();
  await session.release();
  mine.destroy();
});

for (const [rows, overrides] of [[40, {}], [1, { rows: 1 }]]) {
  test(`kernels for ${rows} rows compile while weights arrive${rows === 1 ? ', where the rows are known' : ''}`, async () => {
    const adapter = await navigator.gpu.requestAdapter();
    const mine = await adapter.requestDevice();
    const plain = mine.createComputePipelineAsync.bind(mine);
    let begun = 0;
    const early = [];
    mine.createComputePipelineAsync = (...given) => ((begun += 1), plain(...given));
    const session = await create('chunks', {
      executionProviders: [{ name: 'webgpu', device: mine, onProgress: () => early.push(begun) }], freeDimensionOverrides: overrides,
    });
    const x = new Tensor('float32', new Float32Array(rows * 40), [rows, 40]);
    assert.deepEqual((await session.run({ x })).y.dims, [40, 40]);
    assert(early[0] > 0);
    assert.equal(begun, early[0]);
    await session.release();
    mine.destroy();
  });
}

/** Values for the free dimensions of a model. */
async function everySize(name) {
  const free = await create(name);
  const names = free.inputMetadata.flatMap(({ shape }) => shape.filter((it) => typeof it === 'string'));
  await free.release();
  return Object.fromEntries(names.map((it) => [it, 2]));
}

test('of kernels that the first run waits for, those with the longest texts are compiled first', async () => {
  const own = await (await navigator.gpu.requestAdapter()).requestDevice();
  const [module, lengths] = [own.createShaderModule, []];
  own.createShaderModule = (it) => (lengths.push(it.code.length), module.call(own, it));
  const freeDimensionOverrides = await everySize('tiny');
  lengths.length = 0;
  const session = await create('tiny', { executionProviders: [{ name: 'webgpu', device: own }], freeDimensionOverrides });
  assert(new Set(lengths).size > 2, lengths.join());
  assert.deepEqual(lengths, lengths.toSorted((a, b) => b - a));
  await session.release();
  own.destroy();
});

test('weights have their turns while kernels are read, where that keeps the thread', async () => {
  const own = await (await navigator.gpu.requestAdapter()).requestDevice();
  const [module, write, buffer, order] = [own.createShaderModule, own.queue.writeBuffer, own.createBuffer, []];
  own.createShaderModule = (it) => {
    order.push('kernel');
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 20); // milliseconds
    return module.call(own, it);
  };
  own.queue.writeBuffer = (...them) => (order.push('weights'), write.apply(own.queue, them));
  own.createBuffer = (it) => (order.push('buffer'), buffer.call(own, it));
  const session = await InferenceSession.create(`${server.url}tiny.onnx`, {
    executionProviders: [{ name: 'webgpu', device: own }], freeDimensionOverrides: await everySize('tiny'),
  });
  const [first, last] = [order.indexOf('weights'), order.lastIndexOf('kernel')];
  assert(first > order.indexOf('buffer') && first < last, order.join());
  assert.equal(order[0], 'kernel', 'other threads compile while buffers are made');
  await session.release();
  own.destroy();
});

test('an export and its weights are asked for while a device is', async () => {
  const [adapter, shared, others] = [await navigator.gpu.requestAdapter(), await device(), await serve()];
  const { adapter: before } = env.webgpu;
  // The device comes once weights are asked for.
  const weights = new Promise((done) => (others.intercept = (path) => void (/weights-/.test(path) && done())));
  try {
    env.webgpu.adapter = { features: adapter.features, limits: adapter.limits, requestDevice: (it) => weights.then(() => adapter.requestDevice(it)) };
    env.webgpu.device = undefined;
    await (await InferenceSession.create(`${others.url}tiny.onnx`, { executionProviders: ['webgpu'] })).release();
    assert.notEqual(await device(), shared);
    (await device()).destroy();
  } finally {
    env.webgpu.adapter = before;
    env.webgpu.device = shared;
    others.close();
  }
});

test('profiling tells the nanoseconds of every dispatch', () =>
  withSession('tiny', {}, async (session) => {
    const [{ feeds, wanted }] = samples(ort, 'tiny');
    const told = [];
    env.webgpu.profiling = { mode: 'default', ondata: (data) => told.push(data) };
    try {
      await assertSame((await session.run(feeds)).y, wanted.y);
    } finally {
      env.webgpu.profiling = { mode: 'off' };
    }
    env.webgpu.profiling = { mode: 'defalt' };
    await assert.rejects(session.run(feeds), { name: 'OptionError', message: /profiling\.mode is 'defalt', it takes 'default' or 'off'/ });
    env.webgpu.profiling = { mode: 'off' };
    const { length } = told;
    assert(length > 3);
    assert(told.every((it) => it.version === 1 && it.endTime >= it.startTime && it.programName && it.outputsMetadata.length));
    assert(told.some((it) => it.kernelType.includes('Conv')));
    await session.run(feeds);
    assert.equal(told.length, length);
  }));

test('benchmark gives times of runs', () =>
  withSession('tiny', {}, async (session) => {
    const { avg, min, max } = await ort.benchmark(session, samples(ort, 'tiny')[0].feeds, 3);
    assert(min > 0 && min <= avg && avg <= max);
    await assert.rejects(ort.benchmark(session, {}, 0), /iterations/);
  }));
