// WebAssembly in Node, without a WebGPU: every address of a model that WebGPU takes, and errors that people can read.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { copyFileSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { relative } from 'node:path';
import { after, before, test } from 'node:test';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { promisify } from 'node:util';
import { assertSame, bytesOf, folder, samples, serve } from './fixtures.mjs';

const ort = await import('../dist/ort.wgpu.mjs');
const { InferenceSession } = ort;
// With so many cores onnxruntime-web begins threads, unless it is told otherwise.
Object.defineProperty(globalThis, 'navigator', { value: { hardwareConcurrency: 8 }, configurable: true });
const scratch = mkdtempSync(`${tmpdir()}/wgpu fallback #1-`);
let server;
before(async () => {
  server = await serve();
});
after(() => {
  server.close();
  rmSync(scratch, { recursive: true });
});

const create = (source, wasm = 'wasm') => InferenceSession.create(source, { executionProviders: ['webgpu', wasm] });
async function right(session) {
  const [{ feeds, wanted }] = samples(ort, 'tiny');
  const found = await session.run(feeds);
  for (const [name, it] of Object.entries(wanted)) await assertSame(found[name], it);
  await session.release();
}

const path = `${folder}/tiny.onnx`;
for (const [what, address] of [
  ['a path', () => path],
  ['a relative path', () => relative(process.cwd(), path)],
  ['a path with a space and a #', () => (copyFileSync(path, `${scratch}/tiny.onnx`), `${scratch}/tiny.onnx`)],
  ['a file: URL', () => pathToFileURL(path).href],
  ['the URL of a path with a space and a #', () => (copyFileSync(path, `${scratch}/other.onnx`), pathToFileURL(`${scratch}/other.onnx`).href)],
  ['the folder of an export', () => `${path}.wgpu/`],
  ['the URL of the folder of an export', () => pathToFileURL(`${path}.wgpu`).href],
  ['the single file of an export', () => `${folder}/tiny.wgpu`],
  ['an address of a server', () => `${server.url}tiny.onnx`],
  ['bytes', () => bytesOf('tiny.onnx')],
]) {
  test(what, async () => right(await create(address())));
}

test('without WebGPU nothing waits for a server', async () => {
  let end;
  const broken = new Promise((done) => (end = done));
  server.intercept = (path) => (path.endsWith('manifest.json') ? { body: '{', broken } : undefined);
  await assert.rejects(InferenceSession.create(`${server.url}tiny.onnx`, { executionProviders: ['webgpu'] }), /there is no WebGPU here/);
  end();
  server.intercept = () => undefined;
});

test('a model that the provider names, by path, URL and bytes', async () => {
  for (const model of [path, pathToFileURL(path).href, bytesOf('tiny.onnx')]) await right(await create(bytesOf('tiny.wgpu'), { name: 'wasm', model }));
});

test('a model that is not there', async () => {
  const way = /none\.onnx cannot be read: ENOENT.*; WebAssembly runs the ONNX model, say where it is: executionProviders: \['webgpu', \{name: 'wasm', model: 'model\.onnx'\}\]/;
  for (const address of [`${scratch}/none.onnx`, `${scratch}/none.onnx.wgpu/`, pathToFileURL(`${scratch}/none.onnx`).href]) {
    await assert.rejects(create(address), (error) => error.name === 'ProgramError' && way.test(error.message));
  }
});

test('a folder that tells no model', async () => {
  await assert.rejects(create(`${server.url}b1/`), { name: 'ProgramError', message: /b1 cannot be opened in WebAssembly: .*; WebAssembly runs the ONNX model, say where it is: .*\{name: 'wasm', model: 'model\.onnx'\}/s });
  await right(await create(`${server.url}b1/`, { name: 'wasm', model: `${server.url}tiny.onnx` }));
});

test('the other name of WebAssembly', async () => {
  for (const executionProviders of [['cpu'], ['webgpu', 'cpu'], [{ name: 'cpu' }], ['webgpu', { name: 'cpu', model: path }]]) {
    await right(await InferenceSession.create(path, { executionProviders }));
  }
});

test('a module by function, path or URL', async () => {
  const module = fileURLToPath(new URL('../node_modules/onnxruntime-web/dist/ort.wasm.bundle.min.mjs', import.meta.url));
  const found = await import('onnxruntime-web/wasm');
  const given = [() => found, async () => ({ default: found }), module, relative(process.cwd(), module), pathToFileURL(module), pathToFileURL(module).href];
  for (const it of given) {
    ort.useWasm(it);
    await right(await create(path));
  }
  for (const it of [undefined, null, '', 3, {}, import('onnxruntime-web/wasm')]) {
    assert.throws(() => ort.useWasm(it), { name: 'OptionError', message: /^useWasm takes \(\) => import\('onnxruntime-web\/wasm'\) or an address, not / });
  }
  for (const it of [() => undefined, async () => ({}), async () => ({ default: 3 })]) {
    ort.useWasm(it);
    await assert.rejects(create(path), { name: 'OptionError', message: /not a module of onnxruntime-web/ });
  }
  ort.useWasm(`${scratch}/none.mjs`);
  await assert.rejects(create(path), { name: 'ProgramError', message: /there is no WebAssembly.*none\.mjs.*`npm install onnxruntime-web`.*useWasm\('\/ort\/ort\.wasm\.bundle\.min\.mjs'\)/ });
  ort.useWasm(() => import('onnxruntime-web/wasm'));
});

test('without workers the proxy says so', async () => {
  const proxy = await import('../dist/ort.wgpu.proxy.bundle.min.mjs');
  const { supported, reason } = await proxy.checkWebGPUSupport();
  assert.equal(supported, false);
  assert.match(reason, /^no worker can be started here: /);
});

test('an error that nobody catches prints its message and no screen of source', async () => {
  const program = `
    import { InferenceSession } from ${JSON.stringify(new URL('../dist/ort.wgpu.mjs', import.meta.url).href)};
    await InferenceSession.create('none.onnx', { executionProviders: ['webgpu', 'wasm'] });`;
  const run = promisify(execFile)(process.execPath, ['--input-type=module', '-e', program], { cwd: fileURLToPath(new URL('..', import.meta.url)) });
  const { stderr } = await run.then(() => assert.fail('no error'), (error) => error);
  assert.match(stderr, /ProgramError\]?: none\.onnx cannot be read/);
  for (const line of stderr.split('\n')) assert(line.length < 400, `a line of ${line.length} letters`);
});

test('files of external data are read, too', async () => {
  const taken = [];
  const session = { inputNames: [], outputNames: [], release: async () => undefined };
  ort.useWasm(async () => ({ InferenceSession: { create: async (...given) => (taken.push(given), session) }, Tensor: ort.Tensor, env: ort.env }));
  const data = `${folder}/tiny.json`;
  const far = `${server.url}tiny.json`;
  const externalData = [data, { path: 'a', data: pathToFileURL(data).href }, { path: 'b', data: far }, { path: 'c', data: new Uint8Array(3) }];
  await InferenceSession.create(path, { executionProviders: ['webgpu', 'wasm'], externalData });
  const bytes = bytesOf('tiny.json');
  const read = [{ path: data, data: bytes }, { path: 'a', data: bytes }, { path: 'b', data: far }, { path: 'c', data: new Uint8Array(3) }];
  assert.deepEqual(taken, [[bytesOf('tiny.onnx'), { executionProviders: [{ name: 'wasm' }], externalData: read }]]);
});
