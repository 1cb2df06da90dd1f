// Where WebGPU is missing, or lacks what a model needs, onnxruntime-web as it is published opens the ONNX model in WebAssembly:
// the code that people have for WebGPU gives what Python gives.

import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { after, before, beforeEach, test } from 'node:test';
import { build, createLogger } from 'vite';
import { serve } from '../fixtures.mjs';
import { launch, open, web } from './chromium.mjs';

const imports = {
  'onnxruntime-common': '/modules/onnxruntime-common/dist/esm/index.js',
  'onnxruntime-web/wasm': '/modules/onnxruntime-web/dist/ort.wasm.bundle.min.mjs',
  'onnxruntime-ep-wgpu-web': '/dist/ort.wgpu.mjs',
  'onnxruntime-ep-wgpu-web/proxy': '/dist/ort.wgpu.proxy.mjs',
};
const page = (name, map = '') => `<!doctype html><meta charset="utf-8"><title>test</title>${map}<script type="module" src="/${name}.mjs"></script>`;
const MAP = `<script type="importmap">${JSON.stringify({ imports })}</script>`;
// What all pages have: samples, and results as [elements that differ, elements].
const SHARED = `
  const arrays = { float32: Float32Array, int64: BigInt64Array, bool: Uint8Array, float16: globalThis.Float16Array ?? Uint16Array };
  const tensor = ({ type, dims, hex }) => new ort.Tensor(type, new arrays[type](Uint8Array.from(hex.match(/../g) ?? [], (it) => parseInt(it, 16)).buffer), dims);
  const tensors = (described) => Object.fromEntries(Object.entries(described).map(([name, it]) => [name, tensor(it)]));
  const samples = async (name) => (await (await fetch('/' + name + '.json')).json()).map(({ inputs, outputs }) => ({ feeds: tensors(inputs), wanted: tensors(outputs) }));
  const bytes = async (path) => new Uint8Array(await (await fetch(path)).arrayBuffer());
  const fails = (promise) => promise.then(() => 'no error', (error) => error.name + ': ' + error.message);
  const compare = async (session, name) => {
    let differ = 0, all = 0;
    for (const { feeds, wanted } of await samples(name)) {
      const found = await session.run(feeds);
      for (const [output, { type, dims, data }] of Object.entries(wanted)) {
        const it = found[output];
        if (!(it instanceof ort.Tensor) || it.type !== type || it.dims.join() !== dims.join()) throw Error(output + ' has another type or shape');
        const values = await it.getData();
        data.forEach((x, k) => { all += 1; differ += typeof x === 'bigint' ? values[k] !== x : !(Math.abs(values[k] - x) <= 2e-5 * Math.max(1, Math.abs(x))); });
        it.dispose();
      }
    }
    return [differ, all];
  };
  Object.assign(window, { ort, compare, samples, bytes, fails });`;
const FILES = {
  '/favicon.ico': ' ',
  '/mapped.html': page('mapped', MAP),
  '/mapped.mjs': `import * as ort from 'onnxruntime-common';\nimport * as ours from 'onnxruntime-ep-wgpu-web';\n${SHARED}\nwindow.ours = ours;`,
  '/bundle.html': page('bundle'),
  '/bundle.mjs': `import * as ort from '/dist/ort.wgpu.bundle.min.mjs';\nort.useWasm(() => import('/modules/onnxruntime-web/dist/ort.wasm.min.mjs'));\n${SHARED}`,
  '/proxy.html': page('proxy', MAP),
  '/proxy.mjs': `import * as ort from 'onnxruntime-ep-wgpu-web/proxy';\n${SHARED}`,
  '/alone.html': page('alone'),
  '/alone.mjs': `import * as ort from '/dist/ort.wgpu.bundle.min.mjs';\n${SHARED}`,
};

let server;
let without;
let withWebGPU;
before(async () => {
  server = await serve({ mounts: { '/dist/': `${web}dist/`, '/modules/': `${web}node_modules/` } });
  [without, withWebGPU] = await Promise.all([launch(false), launch()]);
});
beforeEach(() => {
  server.log.length = 0;
  server.intercept = (path) => FILES[path] && { body: FILES[path] };
});
after(async () => {
  await Promise.all([without?.close(), withWebGPU?.close()]);
  server?.close();
});
const visit = (browser, name) => open(browser, `${server.url}${name}.html`, () => window.compare);
const fetched = (ending) => server.log.filter((it) => it.endsWith(ending)).length;
const right = ([differ, all]) => (assert(all > 0), assert.equal(differ, 0));

test('the code of the documents, without WebGPU', async () => {
  const it = await visit(without, 'mapped');
  const { supported, reason } = await it.evaluate(() => ours.checkWebGPUSupport());
  assert.equal(supported, false);
  for (const name of ['tiny', 'types', 'growing']) {
    right(await it.evaluate(async (model) => {
      const session = await ort.InferenceSession.create(`${model}.onnx`, {
        executionProviders: ['webgpu', 'wasm'], preferredOutputLocation: 'gpu-buffer', enableGraphCapture: true,
      });
      await ours.warmup(session);
      const found = await compare(session, model);
      await session.release();
      await session.release();
      return found;
    }, name));
  }
  assert(it.warnings.some((text) => text.includes('"webgpu"') && text.includes(reason)), it.warnings.join());
  assert.deepEqual([fetched('.onnx'), fetched('.wasm'), fetched('manifest.json')], [3, 1, 0]);
  assert.deepEqual(it.problems, []);
});

test('options that both have, names and types, tensors that are passed for outputs, and errors', async () => {
  const it = await visit(without, 'mapped');
  const [metadata, same, wrong, released, generation] = await it.evaluate(async () => {
    const options = { executionProviders: ['webgpu', 'wasm'] };
    const fixed = await ort.InferenceSession.create('tiny.onnx', { ...options, freeDimensionOverrides: { batch: 2, height: 8, width: 12 } });
    const session = await ort.InferenceSession.create('types.onnx', options);
    const [{ feeds }] = await samples('types');
    const sum = new ort.Tensor('int64', new BigInt64Array(5), [5]);
    const results = await session.run(feeds, { sum });
    const same = results.sum === sum && Object.keys(results).length === 1 && sum.data[1] === 2n ** 40n + 6n;
    const wrong = await fails(session.run(feeds, { sum: new ort.Tensor('int64', new BigInt64Array(4), [4]) }));
    await session.release();
    return [fixed.inputMetadata, same, wrong, await fails(session.run(feeds)), await fails(ours.generate(fixed, [1]).next())];
  });
  assert.equal(metadata[0].name, 'x');
  assert.deepEqual(metadata[0].shape, [2, 3, 8, 12]);
  assert(same);
  assert.match(wrong, /^InputError: output 'sum' has shape \[5\].*\[4\]/);
  assert.match(released, /released/);
  assert.match(generation, /^DeviceError: generate needs WebGPU/);
});

test('the model of an export, wherever that is', async () => {
  const it = await visit(without, 'bundle');
  for (const address of ['tiny.onnx', 'tiny.wgpu', 'tiny.onnx.wgpu/', 'tiny.onnx.wgpu', 'tiny.onnx.wgpu/manifest.json']) {
    right(await it.evaluate(async (at) => compare(await ort.InferenceSession.create(at, { executionProviders: ['webgpu', 'wasm'] }), 'tiny'), address));
  }
  const [bytes, named, own, wrong] = await it.evaluate(async () => {
    const create = async (path, wasm) => ort.InferenceSession.create(await bytes(path), { executionProviders: ['webgpu', wasm] });
    return [
      await fails(create('tiny.wgpu', 'wasm')),
      await compare(await create('tiny.wgpu', { name: 'wasm', model: 'tiny.onnx' }), 'tiny'),
      await compare(await create('tiny.onnx', 'wasm'), 'tiny'),
      await fails(create('tiny.wgpu', { name: 'wasm', model: 3 })),
    ];
  });
  assert.match(bytes, /^OptionError: these bytes are an export.*\{name: 'wasm', model: 'model\.onnx'\}/);
  right(named);
  right(own);
  assert.match(wrong, /wasm\.model is 3/);
});

test('what is wrong is said: no model, no WebAssembly, no other provider', async () => {
  const it = await visit(without, 'alone');
  const create = (more) => it.evaluate((given) => fails(ort.InferenceSession.create('tiny.onnx', given)), more);
  assert.match(await create({ executionProviders: ['webgpu'] }), /no available backend.*WebGPU/);
  assert.match(await create({ executionProviders: ['webgpu', 'wasm'] }), /^ProgramError: there is no WebAssembly.*useWasm\(\(\) => import\('onnxruntime-web\/wasm'\)\)/);
  const mapped = await visit(without, 'mapped');
  const missing = await mapped.evaluate(() => fails(ort.InferenceSession.create('none.onnx', { executionProviders: ['webgpu', 'wasm'] })));
  assert.match(missing, /^ProgramError: none\.onnx cannot be opened in WebAssembly: /);
});

test('a module that is named by its address, relative to the page', async () => {
  const it = await visit(without, 'alone');
  for (const at of ['modules/onnxruntime-web/dist/ort.wasm.bundle.min.mjs', '/modules/onnxruntime-web/dist/ort.wasm.bundle.min.mjs', `${server.url}modules/onnxruntime-web/dist/ort.wasm.bundle.min.mjs`]) {
    right(await it.evaluate(async (address) => {
      ort.useWasm(address);
      return compare(await ort.InferenceSession.create('tiny.onnx', { executionProviders: ['webgpu', 'wasm'] }), 'tiny');
    }, at));
  }
});

test('a page whose sessions run in a worker', async () => {
  const it = await visit(without, 'proxy');
  right(await it.evaluate(async () => compare(await ort.InferenceSession.create('tiny.onnx', { executionProviders: ['webgpu', 'wasm'] }), 'tiny')));
});

test('an application that Vite builds', async () => {
  mkdirSync(`${web}build`, { recursive: true });
  const root = mkdtempSync(`${web}build/app-`);
  const told = [];
  const say = (text) => told.push(text);
  try {
    writeFileSync(`${root}/index.html`, page('main'));
    writeFileSync(`${root}/main.mjs`, `import * as ort from 'onnxruntime-ep-wgpu-web';\nort.useWasm(() => import('onnxruntime-web/wasm'));\n${SHARED}`);
    await build({
      root, configFile: false, base: '/app/', customLogger: { ...createLogger('silent'), warn: say, warnOnce: say, error: say },
      build: { target: 'es2022', chunkSizeWarningLimit: 1e6 }, resolve: { alias: { 'onnxruntime-ep-wgpu-web': `${web}dist/ort.wgpu.mjs` } },
    });
    assert.deepEqual(told.filter((text) => !text.includes('PLUGIN_TIMINGS')), []);
    const other = await serve({ mounts: { '/app/': `${root}/dist/` } });
    try {
      const it = await open(without, `${other.url}app/index.html`, () => window.compare);
      right(await it.evaluate(async () => compare(await ort.InferenceSession.create('/tiny.onnx', { executionProviders: ['webgpu', 'wasm'] }), 'tiny')));
    } finally {
      other.close();
    }
  } finally {
    rmSync(root, { recursive: true });
  }
});

test('a model that is no export runs in WebAssembly, with one warning that says how to export it', async () => {
  server.intercept = (path) => (FILES[path] ? { body: FILES[path] } : path.includes('tiny.onnx.wgpu') ? { status: 404, body: '' } : undefined);
  for (const name of ['mapped', 'proxy']) {
    server.log.length = 0;
    const it = await visit(withWebGPU, name);
    for (let time = 0; time < 2; time++) {
      right(await it.evaluate(async () => compare(await ort.InferenceSession.create('tiny.onnx', { executionProviders: ['webgpu', 'wasm'] }), 'tiny')));
    }
    // Of bytes, and of operators that no export has.
    right(await it.evaluate(async () => compare(await ort.InferenceSession.create(await bytes('tiny.onnx'), { executionProviders: ['webgpu', 'wasm'] }), 'tiny')));
    const found = await it.evaluate(async () => {
      const session = await ort.InferenceSession.create('unexported.onnx', { executionProviders: ['webgpu', 'wasm'] });
      const run = async (x) => [...(await session.run({ x: new ort.Tensor('float32', x, [x.length]) })).y.data];
      return [await run([1, -5, 2]), await run([-1, 5])];
    });
    assert.deepEqual(found, [[-1, 5, -2], [1, 5]]);
    assert.equal(it.warnings.filter((text) => /^this session runs in WebAssembly, because WebGPU cannot run it: \S*tiny\.onnx is not an exported model: make one with `wgpu-ep export tiny\.onnx`, and serve the folder that it writes \(\S*tiny\.onnx\.wgpu\/manifest\.json: 404 [^)]*\)$/.test(text)).length, 1);
    assert.equal(it.warnings.filter((text) => text.includes('`wgpu-ep export unexported.onnx`')).length, 1);
    const alone = await it.evaluate(() => fails(ort.InferenceSession.create('unexported.onnx', { executionProviders: ['webgpu'] })));
    assert.match(alone, /^ProgramError: \S*unexported\.onnx is not an exported model: make one with `wgpu-ep export unexported\.onnx`/);
  }
  const lonely = await visit(withWebGPU, 'alone');
  const nothing = await lonely.evaluate(() => fails(ort.InferenceSession.create('unexported.onnx', { executionProviders: ['webgpu', 'wasm'] })));
  assert.match(nothing, /^ProgramError: WebGPU cannot run the model: unexported\.onnx is not an exported model: .*; and there is no WebAssembly to run the model in: .*npm install onnxruntime-web.*useWasm\('\/ort\/ort\.wasm\.bundle\.min\.mjs'\)/);
});

test('the build of onnxruntime-web with WebGPU runs such a model there', async () => {
  const it = await visit(withWebGPU, 'alone');
  const found = await it.evaluate(async () => {
    ort.useWasm(() => import('/modules/onnxruntime-web/dist/ort.webgpu.bundle.min.mjs'));
    const session = await ort.InferenceSession.create('unexported.onnx', { executionProviders: ['webgpu', 'wasm'] });
    const { y } = await session.run({ x: new ort.Tensor('float32', [1, -5, 2], [3]) });
    return [...(await y.getData())];
  });
  assert.deepEqual(found, [-1, 5, -2]);
  assert(it.warnings.some((text) => text.startsWith("this session runs on onnxruntime-web's WebGPU, because WebGPU cannot run it: unexported.onnx is not")), it.warnings.join());
});

test('an export that onnxruntime-web is asked for runs on WebGPU', async () => {
  const it = await visit(withWebGPU, 'mapped');
  right(await it.evaluate(async () => compare(await ort.InferenceSession.create(await bytes('tiny.wgpu'), { executionProviders: ['wasm'] }), 'tiny')));
  assert.deepEqual([fetched('.wasm'), it.warnings], [0, []]);
});

test('with WebGPU nothing of it is fetched', async () => {
  const it = await visit(withWebGPU, 'mapped');
  right(await it.evaluate(async () => compare(await ort.InferenceSession.create('tiny.onnx', { executionProviders: ['webgpu', 'wasm'] }), 'tiny')));
  assert.deepEqual([fetched('.wasm'), fetched('tiny.onnx'), server.log.filter((path) => path.includes('onnxruntime-web')).length], [0, 0, 0]);
  assert.deepEqual([it.warnings, it.problems], [[], []]);
});

test('a feature that the adapter lacks', async () => {
  const asking = (text) => {
    const manifest = JSON.parse(text);
    for (const it of manifest.programs.flatMap(({ targets }) => targets)) it.features = ['shader-unheard-of'];
    return JSON.stringify(manifest);
  };
  const it = await visit(withWebGPU, 'mapped');
  server.intercept = (path) => {
    if (FILES[path]) return { body: FILES[path] };
    return path.endsWith('manifest.json') ? { change: asking } : undefined;
  };
  const create = (providers) => it.evaluate((given) => fails(ort.InferenceSession.create('tiny.onnx', { executionProviders: given })), providers);
  assert.match(await create(['webgpu']), /^LimitError: .*needs the features shader-unheard-of, which this adapter lacks/);
  assert.equal(await create(['webgpu', 'wasm']), 'no error');
  assert(it.warnings.some((text) => /runs in WebAssembly.*shader-unheard-of/.test(text)));
  // What is wrong with an export is no reason to run something else.
  server.intercept = (path) => (FILES[path] ? { body: FILES[path] } : path.endsWith('manifest.json') ? { body: '{' } : undefined);
  assert.match(await create(['webgpu', 'wasm']), /^ProgramError: .*manifest\.json is damaged/);
  assert.deepEqual(await it.evaluate(() => ours.memory()), { buffers: 0, bytes: 0 });
});
