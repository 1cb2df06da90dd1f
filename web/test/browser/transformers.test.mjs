// transformers.js as it is published, with `onnxruntime-web/webgpu` and `onnxruntime-common` mapped to this package, on model
// folders that were exported: the pipelines give what Python gives, and nothing is fetched from anywhere else.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { after, before, test } from 'node:test';
import { folder, serve } from '../fixtures.mjs';
import { launch, open, web } from './chromium.mjs';

const imports = {
  'onnxruntime-web/webgpu': '/dist/ort.wgpu.bundle.min.mjs',
  'onnxruntime-common': '/dist/ort.wgpu.bundle.min.mjs',
  '@huggingface/transformers': '/modules/@huggingface/transformers/dist/transformers.web.js',
};
const FILES = {
  '/favicon.ico': ' ',
  '/page.html': `<!doctype html><meta charset="utf-8"><title>test</title>
    <script type="importmap">${JSON.stringify({ imports })}</script><script type="module" src="/page.mjs"></script>`,
  '/page.mjs': `import * as transformers from '@huggingface/transformers';
    import * as ort from 'onnxruntime-web/webgpu';
    Object.assign(transformers.env, { allowRemoteModels: false, allowLocalModels: true });
    transformers.env.localModelPath = '/folders/';
    Object.assign(window, { transformers, ort });`,
};

let server;
let browser;
let page;
before(async () => {
  server = await serve({ mounts: { '/dist/': `${web}dist/`, '/modules/': `${web}node_modules/` } });
  server.intercept = (path) => FILES[path] && { body: FILES[path] };
  browser = await launch();
  page = await open(browser, `${server.url}page.html`, () => window.transformers);
});
after(async () => {
  await browser?.close();
  server?.close();
});

const expected = (name) => JSON.parse(readFileSync(`${folder}/folders/${name}.json`, 'utf8'));
const held = () => page.evaluate(() => window.ort.memory());
const close = (found, wanted, tolerance) => {
  assert.equal(found.length, wanted.length);
  found.forEach((it, k) => assert(Math.abs(it - wanted[k]) <= tolerance, `element ${k}: ${it}, not ${wanted[k]}`));
};

test('everything that onnxruntime-web/webgpu exports is there', async () => {
  const theirs = await import('onnxruntime-web/webgpu');
  const missing = (names, found) => names.filter((it) => !found.includes(it));
  const [names, byDefault, env] = await page.evaluate(() => [Object.keys(ort), Object.keys(ort.default), Object.keys(ort.env)]);
  assert.deepEqual(missing(Object.keys(theirs), names), []);
  assert.deepEqual(missing(Object.keys(theirs.default), byDefault), []);
  assert.deepEqual(missing(Object.keys(theirs.env), env), []);
});

test('feature extraction gives the vectors that Python gives', async () => {
  const { sentences, vectors } = expected('embeddings');
  const found = await page.evaluate(async (given) => {
    const extract = await transformers.pipeline('feature-extraction', 'embeddings', { device: 'webgpu', dtype: 'fp32' });
    const result = await extract(given, { pooling: 'mean', normalize: true });
    await extract.dispose();
    return result.tolist();
  }, sentences);
  found.forEach((it, k) => close(it, vectors[k], 1e-5));
  assert.deepEqual(await held(), { buffers: 0, bytes: 0 });
});

test('image classification gives the scores that Python gives', async () => {
  const { pixels, size, scores } = expected('images');
  const found = await page.evaluate(async ([data, extent, classes]) => {
    const classify = await transformers.pipeline('image-classification', 'images', { device: 'webgpu', dtype: 'fp32' });
    const image = new transformers.RawImage(Uint8ClampedArray.from(data), extent, extent, 3);
    const result = await classify(image, { top_k: classes });
    await classify.dispose();
    return result;
  }, [pixels, size, scores.length]);
  close(found.map((it) => it.score), found.map((it) => scores[it.label.split(' ')[1]]), 1e-5);
  assert.deepEqual(await held(), { buffers: 0, bytes: 0 });
});

test('text generation streams the tokens that Python gives, with a KV cache that stays on the GPU', async () => {
  const { prompt, tokens } = expected('text');
  const [text, streamed, locations] = await page.evaluate(async ([words, count]) => {
    const generate = await transformers.pipeline('text-generation', 'text', { device: 'webgpu', dtype: 'fp32' });
    const told = [];
    const streamer = new transformers.TextStreamer(generate.tokenizer, { skip_prompt: true, callback_function: (it) => told.push(it) });
    const session = generate.model.sessions.model;
    const seen = new Set();
    const plain = session.run;
    session.run = (feeds, ...rest) => {
      for (const [name, it] of Object.entries(feeds)) if (name.startsWith('past') && it.dims[2]) seen.add(it.location);
      return plain.call(session, feeds, ...rest);
    };
    const options = { max_new_tokens: count, do_sample: false, return_full_text: false, streamer };
    const [result] = await generate(words, options);
    await generate.dispose();
    return [result.generated_text, told.join(''), [...seen]];
  }, [prompt.map((it) => `w${it}`).join(' '), tokens.length]);
  const numbers = (words) => words.match(/\d+/g).map(Number);
  assert.deepEqual(numbers(text), tokens);
  assert.deepEqual(numbers(streamed), tokens);
  assert.deepEqual(locations, ['gpu-buffer']);
  assert.deepEqual(await held(), { buffers: 0, bytes: 0 });
});

test('without a device and a dtype, the models that there are run on WebGPU', async () => {
  const { sentences, vectors } = expected('embeddings');
  const found = await page.evaluate(async (given) => {
    const extract = await transformers.pipeline('feature-extraction', 'embeddings');
    const result = await extract(given, { pooling: 'mean', normalize: true });
    const { buffers } = ort.memory();
    await extract.dispose();
    return [result.tolist(), buffers > 0];
  }, sentences);
  found[0].forEach((it, k) => close(it, vectors[k], 1e-5));
  assert(found[1], 'on the GPU');
  assert.deepEqual(page.problems.filter((it) => !it.includes('404')), []);
});

test('nothing is fetched from other servers, and no WebAssembly', () => {
  assert.deepEqual(page.strangers, []);
  assert.deepEqual(server.log.filter((it) => it.endsWith('.wasm')), []);
});

test('without WebGPU, the ONNX models that were kept beside the exports run in WebAssembly, and one warning says so', async () => {
  const { sentences, vectors } = expected('embeddings');
  const without = await launch(false);
  try {
    const other = await open(without, `${server.url}page.html`, () => window.transformers);
    for (let visit = 0; visit < 2; visit++) { // from the network, and from what transformers.js keeps
      const found = await other.evaluate(async (given) => {
        ort.useWasm('/modules/onnxruntime-web/dist/ort.wasm.bundle.min.mjs');
        const extract = await transformers.pipeline('feature-extraction', 'embeddings');
        const result = await extract(given, { pooling: 'mean', normalize: true });
        await extract.dispose();
        return result.tolist();
      }, sentences);
      found.forEach((it, k) => close(it, vectors[k], 1e-4));
      await other.evaluate(() => performance.clearResourceTimings());
    }
    assert.equal(other.warnings.filter((it) => /^this session runs in WebAssembly, because WebGPU cannot run it: there is (no WebGPU|WebGPU here, but no adapter)/.test(it)).length, 1, other.warnings.join());
    assert.deepEqual(other.strangers, []);
  } finally {
    await without.close();
  }
});
