// A library of another server than the page's, as of a CDN: what it fetches later, and its worker. And pages whose policies
// allow no worker.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { bytesOf, folder, serve } from '../fixtures.mjs';
import { launch, open, web } from './chromium.mjs';

const page = (body) => `<!doctype html><meta charset="utf-8"><title>test</title>${body}`;
const module = (code) => page(`<script type="module">${code}</script>`);
const PROXY = 'ort.wgpu.proxy.bundle.min.mjs';
let server;
let other;
let browser;
const pages = {};
before(async () => {
  server = await serve({ mounts: { '/dist/': `${web}dist/` } });
  other = await serve({ mounts: { '/dist/': `${web}dist/`, '/modules/': `${web}node_modules/` }, headers: { 'access-control-allow-origin': '*' } });
  const use = (file) => `import * as ort from '${file}'; window.ort = ort;`;
  Object.assign(pages, {
    '/favicon.ico': { body: ' ' },
    '/classic.html': { body: page(`<script src="${other.url}dist/ort.wgpu.min.js?v=1/2"></script>`) },
    '/worker.js': { body: `importScripts('${other.url}dist/ort.wgpu.min.js'); ${WORK}` },
    '/proxy.html': { body: module(use(`${other.url}dist/${PROXY}`)) },
    '/no-worker.html': { body: module(use(`/dist/${PROXY}`)), headers: { 'content-security-policy': "worker-src 'none'" } },
    '/no-blob.html': { body: module(use(`${other.url}dist/${PROXY}`)), headers: { 'content-security-policy': "worker-src 'self'" } },
    '/trusted.html': { body: module(use(`/dist/${PROXY}`)), headers: { 'content-security-policy': "require-trusted-types-for 'script'" } },
    '/policy.html': {
      body: module(`${use(`/dist/${PROXY}`)}
        const policy = trustedTypes.createPolicy('mine', { createScriptURL: (it) => it });
        ort.useWorker({ worker: new Worker(policy.createScriptURL('/dist/ort.wgpu.worker.mjs'), { type: 'module' }) });`),
      headers: { 'content-security-policy': "require-trusted-types-for 'script'" },
    },
  });
  server.intercept = (path) => pages[path];
  browser = await launch();
});
after(async () => {
  await browser?.close();
  server?.close();
  other?.close();
});
const visit = (name) => open(browser, `${server.url}${name}.html`, () => window.ort);

/** What a classic script fetches later: the loop of a generation, operators of small models, WebAssembly, pictures. */
const LATER = `async (ort, wasm) => {
  const bytes = async (path) => new Uint8Array(await (await fetch(path)).arrayBuffer());
  const session = await ort.InferenceSession.create(await bytes('/causal.wgpu'), { executionProviders: ['webgpu'] });
  const tokens = [];
  for await (const token of ort.generate(session, [1, 2, 3], { maxNewTokens: 3 })) tokens.push(token);
  await session.release();
  ort.useWasm(wasm);
  const fallback = await ort.InferenceSession.create('/tiny.onnx', { executionProviders: ['cpu'] });
  const host = (await (await fetch('/host.json')).json())[0];
  const small = await ort.InferenceSession.create(Uint8Array.from(host.model.match(/../g), (it) => parseInt(it, 16)), { executionProviders: ['webgpu'] });
  const picture = await ort.Tensor.fromImage(new ImageData(Uint8ClampedArray.of(255, 0, 51, 255), 1, 1));
  if (!(picture instanceof ort.Tensor)) throw Error('the picture is a tensor of another class');
  return { tokens: tokens.length, inputs: fallback.inputNames, small: small.inputNames.length, picture: [picture.dims.join(), [...picture.data].map((it) => it.toFixed(2)).join()] };
}`;
const FOUND = { tokens: 3, inputs: ['x'], small: 2, picture: ['1,3,1,1', '1.00,0.00,0.20'] };
const WORK = `onmessage = async ({ data }) => postMessage(await (${LATER})(ort, data).catch((error) => String(error)));`;
const wasm = () => `${other.url}modules/onnxruntime-web/dist/ort.wasm.bundle.min.mjs`;

test('a classic script of another server fetches from there what comes later', async () => {
  const it = await visit('classic');
  const found = await it.evaluate(`(${LATER})(ort, ${JSON.stringify(wasm())})`);
  assert.deepEqual(found, FOUND);
  assert.deepEqual(it.problems, []);
});

test('so it does in a worker', async () => {
  const it = await visit('classic');
  const found = await it.evaluate((address) => new Promise((resolve) => {
    const worker = new Worker('/worker.js');
    worker.onmessage = ({ data }) => resolve(data);
    worker.postMessage(address);
  }), wasm());
  assert.deepEqual(found, FOUND);
});

const works = async (it) => {
  const found = await it.evaluate(async () => {
    const { supported, reason } = await ort.checkWebGPUSupport();
    const session = await ort.InferenceSession.create('tiny.onnx', { executionProviders: ['webgpu'] });
    const names = session.inputNames;
    await session.release();
    return { supported, reason, names };
  });
  assert.deepEqual(found, { supported: true, reason: undefined, names: ['x'] });
};

test('the worker of another server runs in a worker of the page', async () => works(await visit('proxy')));

test('a worker that the page starts, where a policy wants that', async () => works(await visit('policy')));

for (const [name, reason] of [['no-worker', /worker/], ['no-blob', /worker/], ['trusted', /TrustedScriptURL/]]) {
  test(`${name}: no worker can be started, which is a reason and no rejection`, async () => {
    const it = await visit(name);
    const found = await it.evaluate(async () => {
      const support = await ort.checkWebGPUSupport();
      return { ...support, error: await ort.InferenceSession.create('tiny.onnx', { executionProviders: ['webgpu'] }).catch(String) };
    });
    assert.equal(found.supported, false);
    assert.match(found.reason, reason);
    for (const text of [found.reason, found.error]) assert.match(text, /useWorker\(\{ worker \}\)/);
  });
}
