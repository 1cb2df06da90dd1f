// The same in Chromium, under a content security policy that allows no code made of text: a module and a classic script, a
// worker, and weights that are fetched once.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { after, before, test } from 'node:test';
import { folder, serve } from '../fixtures.mjs';
import { launch, open, web } from './chromium.mjs';

const MODELS = ['tiny', 'types', 'half', 'elements', 'growing', 'state'];
const headers = { 'content-security-policy': "default-src 'self'; script-src 'self'; worker-src 'self'" };

// Runs in the page or worker: the samples of a model as [elements that differ, elements] of all outputs.
const RUN = `
async function compare(ort, name, address) {
  const arrays = {float32: Float32Array, int64: BigInt64Array, bool: Uint8Array, float16: globalThis.Float16Array ?? Uint16Array};
  const tensor = ({type, dims, hex}) => new ort.Tensor(type, new arrays[type](Uint8Array.from(hex.match(/../g) ?? [], (it) => parseInt(it, 16)).buffer), dims);
  const tensors = (described) => Object.fromEntries(Object.entries(described).map(([name, it]) => [name, tensor(it)]));
  const samples = await (await fetch('/' + name + '.json')).json();
  const session = await ort.InferenceSession.create(address, {executionProviders: ['webgpu']});
  let differ = 0, all = 0;
  for (const {inputs, outputs} of samples) {
    const results = await session.run(tensors(inputs));
    for (const [name, wanted] of Object.entries(tensors(outputs))) {
      const found = results[name];
      if (found.type !== wanted.type || found.dims.join() !== wanted.dims.join()) throw Error(name + ' has another type or shape');
      found.data.forEach((it, k) => {
        all += 1;
        const close = typeof it === 'bigint' ? it === wanted.data[k] : Math.abs(it - wanted.data[k]) <= (wanted.type === 'float16' ? 4e-3 : 2e-5) * Math.max(1, Math.abs(wanted.data[k]));
        if (!close) differ += 1;
      });
    }
  }
  await session.release();
  return {differ, all, held: ort.memory()};
}`;
const FILES = {
  '/favicon.ico': ' ',
  '/page.html': '<!doctype html><meta charset="utf-8"><title>test</title><script type="module" src="/page.mjs"></script>',
  '/classic.html': '<!doctype html><meta charset="utf-8"><title>test</title><script src="/dist/ort.wgpu.min.js"></script><script src="/classic.js"></script>',
  '/page.mjs': `import * as ort from '/dist/ort.wgpu.bundle.min.mjs';\n${RUN}\nwindow.ort = ort; window.compare = compare;`,
  '/classic.js': `${RUN}\nwindow.compare = compare;`,
  '/worker.js': `importScripts('/dist/ort.wgpu.min.js');\n${RUN}\nonmessage = async ({data}) => postMessage(await compare(ort, data, '/' + data + '.onnx').catch((error) => String(error)));`,
};

let server;
let browser;
before(async () => {
  server = await serve({ mounts: { '/dist/': `${web}dist/` }, headers });
  server.intercept = (path) => FILES[path] && { body: FILES[path] };
  browser = await launch();
});
after(async () => {
  await browser?.close();
  server?.close();
});

const visit = (path) => open(browser, server.url + path, () => window.compare);

const right = ({ differ, all, held }) => {
  assert(all > 0);
  assert.equal(differ, 0);
  assert.deepEqual(held, { buffers: 0, bytes: 0 });
};

test('a module runs models of an address', async () => {
  const page = await visit('page.html');
  for (const name of MODELS) right(await page.evaluate((it) => window.compare(window.ort, it, `/${it}.onnx`), name));
  assert.deepEqual(page.problems, []);
});

test('a classic script runs models of one file and of bytes', async () => {
  const page = await visit('classic.html');
  right(await page.evaluate(() => window.compare(window.ort, 'tiny', '/tiny.wgpu')));
  right(await page.evaluate(async () => window.compare(window.ort, 'types', new Uint8Array(await (await fetch('/types.wgpu')).arrayBuffer()))));
  assert.deepEqual(page.problems, []);
});

test('a worker runs models', async () => {
  const page = await visit('classic.html');
  right(await page.evaluate(() => new Promise((resolve) => {
    const worker = new Worker('/worker.js');
    worker.onmessage = ({ data }) => resolve(data);
    worker.postMessage('tiny');
  })));
});

test('weights are fetched once, and again when the model is another one', async () => {
  const page = await visit('page.html');
  const chunks = () => server.log.filter((it) => it.includes('chunks.onnx.wgpu/weights')).length;
  const run = () => page.evaluate(() => window.compare(window.ort, 'chunks', '/chunks.onnx'));
  const { length } = JSON.parse(readFileSync(`${folder}/chunks.onnx.wgpu/manifest.json`, 'utf8')).weights.chunks;
  server.log.length = 0;
  right(await run());
  assert.equal(chunks(), length);
  right(await run());
  assert.equal(chunks(), length);
  await page.evaluate(() => window.ort.clearCache());
  right(await run());
  assert.equal(chunks(), 2 * length);
  // What the cache has is checked, too: a changed entry is fetched again.
  await page.evaluate(async () => {
    const cache = await caches.open('onnxruntime-ep-wgpu');
    const first = (await cache.keys()).find((it) => it.url.includes('weights'));
    const old = await cache.match(first);
    const bytes = new Uint8Array(await old.arrayBuffer());
    bytes[0] ^= 1;
    await cache.put(first, new Response(bytes, { headers: old.headers }));
  });
  right(await run());
  assert.equal(chunks(), 2 * length + 1);
});

test('another model under the same names arrives at once, whatever the browser has kept of the old one', async () => {
  const page = await visit('page.html');
  const immutable = { 'cache-control': 'max-age=31536000, immutable' };
  for (const kept of [{ 'last-modified': 'Mon, 01 Jan 2001 00:00:00 GMT' }, immutable]) {
    const at = `/again${kept === immutable}.onnx`;
    for (const name of ['tiny', 'types', 'chunks']) {
      server.intercept = (path) => {
        if (FILES[path]) return { body: FILES[path] };
        if (!path.startsWith(at)) return undefined;
        return { body: readFileSync(folder + path.replace(at, `/${name}.onnx`)), headers: path.endsWith('manifest.json') ? { 'last-modified': 'Mon, 01 Jan 2001 00:00:00 GMT' } : kept };
      };
      right(await page.evaluate(([model, address]) => window.compare(window.ort, model, address), [name, at]));
    }
  }
  server.intercept = (path) => FILES[path] && { body: FILES[path] };
});

test('a server that does not answer keeps nobody waiting who was here before, and a late answer is for the next visit', async () => {
  const page = await visit('page.html');
  let name = 'tiny';
  let answered = Promise.resolve();
  server.intercept = async (path) => {
    if (FILES[path]) return { body: FILES[path] };
    if (!path.startsWith('/late.onnx')) return undefined;
    await answered;
    return { body: readFileSync(folder + path.replace('/late.onnx', `/${name}.onnx`)) };
  };
  const run = (model) => page.evaluate((it) => window.compare(window.ort, it, '/late.onnx'), model);
  /** Waits until the kept manifest is that of a model. */
  const kept = (model) => page.waitForFunction(async (wanted) => {
    const cache = await caches.open('onnxruntime-ep-wgpu');
    const key = (await cache.keys()).find((it) => it.url.includes('late.onnx.wgpu/manifest'));
    return (await (await cache.match(key))?.text()) === wanted;
  }, readFileSync(`${folder}/${model}.onnx.wgpu/manifest.json`, 'utf8'));
  right(await run('tiny'));
  await kept('tiny');
  let answer;
  answered = new Promise((done) => (answer = done));
  name = 'types';
  right(await run('tiny'));
  await kept('tiny');
  answer();
  await kept('types');
  right(await run('types'));
  const files = await page.evaluate(async () => (await (await caches.open('onnxruntime-ep-wgpu')).keys()).map((it) => it.url));
  assert.deepEqual(files.filter((it) => /late\.onnx\.wgpu\/(?!manifest|programs)/.test(it)), [], 'the weights of the old version are gone');
  assert.equal(files.filter((it) => it.includes('late.onnx.wgpu/programs')).length, 1);
  server.intercept = (path) => FILES[path] && { body: FILES[path] };
});
