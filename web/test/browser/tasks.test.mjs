// Tasks of transformers.js on folders that `wgpu-ep export --transformers` wrote, beside the same tasks on onnxruntime-web with the
// folders that were exported.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { after, before, test } from 'node:test';
import { folder, serve } from '../fixtures.mjs';
import { launch, open, web } from './chromium.mjs';

const TRANSFORMERS = '/modules/@huggingface/transformers/dist/transformers.web.js';
const OURS = { 'onnxruntime-web/webgpu': '/dist/ort.wgpu.bundle.min.mjs', 'onnxruntime-common': '/dist/ort.wgpu.bundle.min.mjs', '@huggingface/transformers': TRANSFORMERS };
const THEIRS = {
  'onnxruntime-web/webgpu': '/modules/onnxruntime-web/dist/ort.wasm.bundle.min.mjs', 'onnxruntime-common': '/modules/onnxruntime-web/dist/ort.wasm.bundle.min.mjs',
  '@huggingface/transformers': TRANSFORMERS,
};
const page = (imports, models, device) => `<!doctype html><meta charset="utf-8"><title>test</title>
  <script type="importmap">${JSON.stringify({ imports })}</script>
  <script type="module">
    import * as transformers from '@huggingface/transformers';
    import * as ort from 'onnxruntime-web/webgpu';
    const { env } = transformers;
    Object.assign(env, { allowRemoteModels: false, allowLocalModels: true, localModelPath: '${models}' });
    const wasm = env.backends.onnx.wasm;
    if (wasm) wasm.wasmPaths = location.origin + '/modules/onnxruntime-web/dist/';
    Object.assign(window, { transformers, ort, options: { device: '${device}', dtype: 'fp32' } });
  </script>`;
const FILES = { '/favicon.ico': ' ', '/ours.html': page(OURS, '/folders/', 'webgpu'), '/theirs.html': page(THEIRS, '/folders/hub/', 'wasm') };

let server;
let browser;
let ours;
let theirs;
before(async () => {
  server = await serve({ mounts: { '/dist/': `${web}dist/`, '/modules/': `${web}node_modules/` } });
  server.intercept = (path) => FILES[path] && { body: FILES[path] };
  browser = await launch();
  [ours, theirs] = await Promise.all(['ours', 'theirs'].map((it) => open(browser, `${server.url}${it}.html`, () => window.options)));
});
after(async () => {
  await browser?.close();
  server?.close();
});

/** Raises unless two results are alike, but for rounding. */
function assertLike(found, wanted, place = 'result') {
  if (typeof wanted === 'number' && !Number.isInteger(wanted)) assert(Math.abs(found - wanted) <= 1e-4 * Math.max(1, Math.abs(wanted)), `${place}: ${found}, not ${wanted}`);
  else if (typeof wanted !== 'object' || wanted === null) assert.equal(found, wanted, place);
  else {
    assert.deepEqual(Object.keys(found), Object.keys(wanted), place);
    for (const key of Object.keys(wanted)) assertLike(found[key], wanted[key], `${place}.${key}`);
  }
}

const given = JSON.parse(readFileSync(`${folder}/folders/tasks.json`, 'utf8'));

/** What each task gives in a page. */
const TASKS = {
  'zero-shot-classification': async ({ premise, labels }) => {
    const classify = await transformers.pipeline('zero-shot-classification', 'zero_shot', options);
    const found = [await classify(premise, labels), await classify([premise, labels[0]], labels, { multi_label: true })];
    await classify.dispose();
    return found;
  },
  'reranking, text pairs of different lengths in one run': async ({ query, passages }) => {
    const tokenizer = await transformers.AutoTokenizer.from_pretrained('reranking');
    const model = await transformers.AutoModelForSequenceClassification.from_pretrained('reranking', options);
    const inputs = tokenizer(new Array(passages.length).fill(query), { text_pair: passages, padding: true, truncation: true });
    const { logits } = await model(inputs);
    const found = logits.sigmoid().tolist();
    await model.dispose();
    return [inputs.token_type_ids.tolist().map((it) => it.map(Number)), inputs.attention_mask.tolist().map((it) => it.map(Number)), found];
  },
  'automatic-speech-recognition, Whisper': async ({ samples: { rate, count } }) => {
    const recognise = await transformers.pipeline('automatic-speech-recognition', 'speech', options);
    const sound = Float32Array.from({ length: count }, (_, k) => 0.5 * Math.sin((2 * Math.PI * 440 * k) / rate) + 0.2 * Math.sin((2 * Math.PI * (200 + k / 20) * k) / rate));
    const told = [];
    const streamer = new transformers.WhisperTextStreamer(recognise.tokenizer, { callback_function: (it) => told.push(it) });
    // Two sounds, of which the second one is longer than the model takes at once.
    const [first, second] = [await recognise(sound, { max_new_tokens: 12, streamer }), await recognise(Float32Array.from([...sound, ...sound, ...sound]), { max_new_tokens: 6, chunk_length_s: 2 })];
    await recognise.dispose();
    return [first, told.join(''), second];
  },
  'object-detection': async ({ pixels }) => {
    const detect = await transformers.pipeline('object-detection', 'objects', options);
    const data = Uint8ClampedArray.from({ length: 3 * pixels * pixels }, (_, k) => (k * 37 + ((k / 96) | 0) * 11) % 256);
    const found = await detect(new transformers.RawImage(data, pixels, pixels, 3), { threshold: 0.3 });
    await detect.dispose();
    return found;
  },
};

for (const [name, task] of Object.entries(TASKS)) {
  test(name, async () => {
    const [found, wanted] = [await ours.evaluate(task, given), await theirs.evaluate(task, given)];
    assertLike(found, wanted);
    // There is something to compare: different numbers, different words.
    assert(new Set(JSON.stringify(wanted).match(/\d\.\d{4,}|w\d+/g)).size > 2, JSON.stringify(wanted));
    assert.deepEqual(await ours.evaluate(() => ort.memory()), { buffers: 0, bytes: 0 });
  });
}

test('nothing of onnxruntime-web was fetched for WebGPU, and nothing went wrong', async () => {
  const names = await ours.evaluate(() => performance.getEntriesByType('resource').map((it) => it.name));
  assert.deepEqual(names.filter((it) => it.includes('/onnxruntime-web/')), []);
  assert.deepEqual([ours.strangers, theirs.strangers], [[], []]);
  for (const it of [ours, theirs]) assert.deepEqual(it.problems.filter((problem) => !problem.includes('404')), []);
});
