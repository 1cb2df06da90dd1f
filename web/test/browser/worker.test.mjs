// Sessions in the ready-made worker: what a page writes and gets is the same, the page itself uses no GPU, and GPU tensors stay
// in the worker. Under a content security policy that allows no code made of text.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { after, before, beforeEach, test } from 'node:test';
import { folder, serve } from '../fixtures.mjs';
import { launch, open, web } from './chromium.mjs';

const headers = { 'content-security-policy': "default-src 'self'; script-src 'self'; worker-src 'self'" };
const FILES = {
  '/favicon.ico': ' ',
  '/page.html': '<!doctype html><meta charset="utf-8"><title>test</title><script type="module" src="/page.mjs"></script>',
  '/page.mjs': `import * as ort from '/dist/ort.wgpu.proxy.bundle.min.mjs';
    GPU.prototype.requestAdapter = () => { throw Error('the page uses the GPU itself'); };
    const arrays = { float32: Float32Array, int64: BigInt64Array, bool: Uint8Array, float16: globalThis.Float16Array ?? Uint16Array };
    const tensor = ({ type, dims, hex }) => new ort.Tensor(type, new arrays[type](Uint8Array.from(hex.match(/../g) ?? [], (it) => parseInt(it, 16)).buffer), dims);
    const tensors = (described) => Object.fromEntries(Object.entries(described).map(([name, it]) => [name, tensor(it)]));
    const samples = async (name) => (await (await fetch('/' + name + '.json')).json()).map(({ inputs, outputs }) => ({ feeds: tensors(inputs), wanted: tensors(outputs) }));
    const create = (name, more = {}) => ort.InferenceSession.create(name + '.onnx', { executionProviders: ['webgpu'], ...more });
    const fails = (promise) => promise.then(() => 'no error', (error) => error.name + ': ' + error.message);
    const differences = (found, wanted) => Object.entries(wanted).flatMap(([name, { type, dims, data }]) => {
      const it = found[name];
      if (it.type !== type || it.dims.join() !== dims.join()) return [name];
      return [...it.data].filter((x, k) => typeof x === 'bigint' ? x !== data[k] : Math.abs(x - data[k]) > 4e-3 * Math.max(1, Math.abs(data[k])));
    });
    Object.assign(window, { ort, samples, create, fails, differences });`,
};

let server;
let browser;
let page;
before(async () => {
  server = await serve({ mounts: { '/dist/': `${web}dist/` }, headers });
  server.intercept = (path) => FILES[path] && { body: FILES[path] };
  browser = await launch();
  page = await open(browser, `${server.url}page.html`, () => window.differences);
});
beforeEach(() => (page.problems.length = 0));
after(async () => {
  await browser?.close();
  server?.close();
});
const nothingHeld = async () => assert.deepEqual(await page.evaluate(() => ort.memory()), { buffers: 0, bytes: 0 });

test('a signal ends the creation of a session, with its own reason', async () => {
  const ends = await page.evaluate(async () => {
    const end = new AbortController();
    const options = (more) => ({ executionProviders: [{ name: 'webgpu', ...more }] });
    const onProgress = () => end.abort(new TypeError('enough'));
    return [
      await fails(ort.InferenceSession.create('large.onnx', options({ signal: end.signal, onProgress }))),
      await fails(ort.InferenceSession.create('large.onnx', options({ signal: end.signal }))),
    ];
  });
  assert.deepEqual(ends, ['TypeError: enough', 'TypeError: enough']);
  await nothingHeld();
});

test('models run in the worker as they do in the page', async () => {
  for (const name of ['types', 'half', 'elements']) {
    const wrong = await page.evaluate(async (model) => {
      const session = await create(model);
      const found = [];
      for (const { feeds, wanted } of await samples(model)) found.push(...differences(await session.run(feeds), wanted));
      await session.release();
      await session.release();
      return found;
    }, name);
    assert.deepEqual(wrong, []);
  }
  await nothingHeld();
  assert.deepEqual(page.problems, []);
});

test('names, types and shapes, a warmup, a benchmark, and the progress of loading are told', async () => {
  const [inputs, outputs, metadata, told, times] = await page.evaluate(async () => {
    const progress = [];
    const session = await create('chunks', { executionProviders: [{ name: 'webgpu', onProgress: (it) => progress.push(it) }] });
    await ort.warmup(session, { x: [40, 40] });
    const times = await ort.benchmark(session, (await samples('chunks'))[0].feeds, 2);
    await session.release();
    return [session.inputNames, session.outputNames, session.inputMetadata, progress, times];
  });
  assert.deepEqual([inputs, outputs, metadata], [['x'], ['y'], [{ name: 'x', isTensor: true, type: 'float32', shape: ['rows', 40] }]]);
  assert.equal(told.at(-1).loaded, told.at(-1).total);
  assert(times.min >= 0 && times.min <= times.avg); // the clock of a page is coarse
  await nothingHeld();
});

test('GPU tensors go round in the worker and are read and freed from the page', async () => {
  const [sums, location, kept, last] = await page.evaluate(async () => {
    const session = await create('state', { preferredOutputLocation: { next: 'gpu-buffer' } });
    let [{ feeds: { state } }] = await samples('state');
    const sums = [];
    for (let step = 0; step < 4; step++) {
      const { next, total } = await session.run({ state });
      if (step) state.dispose();
      sums.push(total.data[0]);
      state = next;
    }
    const { location } = state;
    // Into a tensor that the worker holds already.
    const again = await session.run({ state: new ort.Tensor('float32', new Float32Array(4).fill(1), [4]) }, { next: state, total: null });
    const kept = again.next === state;
    const last = [...(await state.getData())];
    state.dispose();
    await session.release();
    return [sums, location, kept, last];
  });
  assert.deepEqual(sums, [12, 24, 48, 96]);
  assert.deepEqual([location, kept, last], ['gpu-buffer', true, [2, 2, 2, 2]]);
  await nothingHeld();
});

test('an output goes into the tensor that is passed for it', async () => {
  const [same, data, wrong] = await page.evaluate(async () => {
    const session = await create('types');
    const [{ feeds }] = await samples('types');
    const mine = new ort.Tensor('int64', new BigInt64Array(5), [5]);
    const { sum } = await session.run(feeds, { sum: mine });
    const wrong = await fails(session.run(feeds, { sum: new ort.Tensor('int64', new BigInt64Array(4), [4]) }));
    await session.release();
    return [sum === mine, String(mine.data[1]), wrong];
  });
  assert.deepEqual([same, data], [true, String(2 ** 40 + 6)]);
  assert.match(wrong, /InputError: output 'sum' has shape \[5\].*\[4\]/);
});

test('inputs are copied, or handed over when that is asked for', async () => {
  const lengths = await page.evaluate(async () => {
    const session = await create('state');
    const lengths = [];
    for (const transferInputs of [false, true]) {
      ort.useWorker({ transferInputs });
      const state = new ort.Tensor('float32', new Float32Array(4), [4]);
      await session.run({ state });
      lengths.push(state.data.length);
    }
    ort.useWorker({ transferInputs: false });
    await session.release();
    return lengths;
  });
  assert.deepEqual(lengths, [4, 0]);
});

test('errors are those of the package, of the same class', async () => {
  const found = await page.evaluate(async () => {
    const session = await create('types');
    const [{ feeds }] = await samples('types');
    const there = ort.Tensor.fromGpuBuffer({}, { dataType: 'int64', dims: [5] });
    const errors = [
      await fails(create('none')),
      await fails(create('types', { executionMode: 'quick' })),
      await fails(create('types', { executionProviders: [{ name: 'webgpu', device: {} }] })),
      await fails(session.run({ a: new ort.Tensor('int32', [1], [1]) })),
      await fails(session.run({ a: there })),
    ];
    await session.release();
    errors.push(await fails(session.run(feeds)));
    return errors;
  });
  const patterns = [
    /^ProgramError: .*none\.onnx cannot be fetched: 404/, /^OptionError: executionMode is "quick"/, /^OptionError: webgpu\.device/,
    /^InputError: input 'a' is int32/, /^InputError: 'a' is in a GPU buffer of the page/, /^InputError: the session is released/,
  ];
  patterns.forEach((it, k) => assert.match(found[k], it));
  await nothingHeld();
});

test('profiling that begins after the session was made is told to the page, or printed where the page does not listen', async () => {
  const found = await page.evaluate(async () => {
    const session = await create('types');
    const [{ feeds }] = await samples('types');
    const told = [];
    ort.env.webgpu.profiling = { mode: 'default', ondata: (data) => told.push(data) };
    await session.run(feeds);
    const { length } = told;
    ort.env.webgpu.profiling = { mode: 'default' };
    await session.run(feeds);
    ort.env.webgpu.profiling = { mode: 'off' };
    await session.run(feeds);
    await session.release();
    return [length, told.length, told.every((it) => it.version === 1 && it.endTime >= it.startTime)];
  });
  const printed = page.said.filter((it) => it.startsWith('[profiling] kernel '));
  assert(found[0] > 0);
  assert.deepEqual(found, [found[0], found[0], true]);
  assert.equal(printed.length, found[0]);
  await nothingHeld();
});

test('a texture is refused by name', async () => {
  const problem = await page.evaluate(async () => {
    const session = await create('types');
    const problem = await fails(session.run({ a: ort.Tensor.fromTexture({}, { width: 1, height: 1 }) }));
    await session.release();
    return problem;
  });
  assert.match(problem, /^InputError: 'a' is at 'texture': pass a tensor of its getData\(\)/);
});

test('a wrong flag of env.webgpu is an error of the option, and none once it is mended', async () => {
  const fresh = await open(browser, `${server.url}page.html`, () => window.differences);
  const found = await fresh.evaluate(async () => {
    ort.env.webgpu.powerPreference = 'max';
    const { supported, reason } = await ort.checkWebGPUSupport();
    const problem = await fails(create('types'));
    ort.env.webgpu.powerPreference = 'low-power';
    return { supported, reason, problem, mended: await fails(create('types')) };
  });
  const message = "env.webgpu.powerPreference is 'max', it takes 'low-power' or 'high-performance'";
  assert.deepEqual(found, { supported: false, reason: message, problem: `OptionError: ${message}`, mended: 'no error' });
});

test('text is generated in the worker, and ends where the page says', async () => {
  const { tokens: expected } = JSON.parse(readFileSync(`${folder}/causal.json`, 'utf8'));
  const [all, some, aborted, wrong] = await page.evaluate(async () => {
    const { prompt } = await (await fetch('/causal.json')).json();
    const session = await ort.InferenceSession.create('causal.wgpu', { executionProviders: ['webgpu'] });
    const collect = async (options, found = []) => {
      for await (const token of ort.generate(session, prompt, options)) found.push(token);
      return found;
    };
    const all = await collect({ maxNewTokens: 6 });
    const some = await collect({ stop: (made) => made.length === 3 });
    const end = new AbortController();
    const aborted = [await fails(collect({ signal: end.signal, stop: (made) => made.length === 2 && end.abort() }))];
    const wrong = await fails(collect({ topK: -1 }));
    await session.release();
    return [all, some, aborted, wrong];
  });
  assert.deepEqual([all, some], [expected.slice(0, 6), expected.slice(0, 3)]);
  assert.match(aborted[0], /^AbortError/);
  assert.match(wrong, /^OptionError: generate: topK is -1/);
  await nothingHeld();
});

test('a terminated worker is an error of its sessions; the next session has a new one', async () => {
  const [pending, later, held, right] = await page.evaluate(async () => {
    const session = await create('types');
    const [{ feeds, wanted }] = await samples('types');
    const running = fails(session.run(feeds));
    ort.terminate();
    const later = fails(session.run(feeds));
    const other = await create('types');
    const right = differences(await other.run(feeds), wanted);
    await other.release();
    return [await running, await later, await ort.memory(), right];
  });
  assert.match(pending, /^DeviceError: the worker was terminated/);
  assert.match(later, /^DeviceError: the worker was terminated/);
  assert.deepEqual([held, right], [{ buffers: 0, bytes: 0 }, []]);
});
