// What pages meet sooner or later: a device that is lost, memory that is used up, networks that stop.

import assert from 'node:assert/strict';
import { after, before, beforeEach, test } from 'node:test';
import { bytesOf, serve } from '../fixtures.mjs';
import { launch, open, web } from './chromium.mjs';

const FILES = {
  '/favicon.ico': ' ',
  '/page.html': '<!doctype html><meta charset="utf-8"><title>test</title><script type="module" src="/page.mjs"></script>',
  '/page.mjs': `import * as ort from '/dist/ort.wgpu.bundle.min.mjs';
    const said = (promise) => promise.then(() => 'right', (error) => error.name + ': ' + error.message);
    const make = (address, more = {}, rest = {}) => ort.InferenceSession.create(address, { executionProviders: [{ name: 'webgpu', ...more }], ...rest });
    const x = () => ({ x: new ort.Tensor('float32', new Float32Array(192).fill(1), [1, 3, 8, 8]) });
    Object.assign(window, { ort, said, make, x });`,
};

const MANIFEST = JSON.parse(new TextDecoder().decode(bytesOf('large.onnx.wgpu/manifest.json')));

let server;
let browser;
let page;
before(async () => {
  server = await serve({ mounts: { '/dist/': `${web}dist/` } });
  server.intercept = (path) => FILES[path] && { body: FILES[path] };
  browser = await launch();
  page = await open(browser, `${server.url}page.html`, () => window.make);
});
after(async () => {
  await browser?.close();
  server?.close();
});
beforeEach(() => {
  server.log.length = 0;
  server.intercept = (path) => FILES[path] && { body: FILES[path] };
});

const LOST = /^DeviceError: the WebGPU device is lost \(/;

test('a run under way when the device is lost fails and says so; the next one works at once', async () => {
  const found = await page.evaluate(async () => {
    const session = await make('tiny.onnx');
    await session.run(x());
    const all = [];
    for (let time = 0; time < 3; time++) {
      const device = await ort.env.webgpu.device;
      const under = said(session.run(x()));
      device.destroy();
      const next = said(session.run(x())); // nothing waited in between
      all.push([await under, await next, await said(session.run(x()))]);
    }
    // While nothing runs: the next run finds it.
    (await ort.env.webgpu.device).destroy();
    all.push([await said(session.run(x()))]);
    await session.release();
    return [all, ort.memory()];
  });
  const [all, held] = found;
  for (const [under, ...later] of all.slice(0, 3)) {
    assert.match(under, LOST);
    assert.deepEqual(later, ['right', 'right']);
  }
  assert.deepEqual(all[3], ['right']);
  assert.deepEqual(held, { buffers: 0, bytes: 0 });
});

test('a loss that nobody asked for, told by the browser after the run has failed', async () => {
  const all = await page.evaluate(async () => {
    const session = await make('tiny.onnx');
    await session.run(x());
    const device = await ort.env.webgpu.device;
    const under = said(session.run(x()));
    GPUDevice.prototype.destroy.call(device); // as a driver does: the library is not asked
    return [await under, await said(session.run(x())), await said(session.run(x())), await session.release()];
  });
  assert.match(all[0], LOST);
  assert.deepEqual(all.slice(1, 3), ['right', 'right']);
});

test('memory that is used up: the error names the tensor and its bytes', async () => {
  const found = await page.evaluate(async () => {
    const adapter = await navigator.gpu.requestAdapter();
    const device = await adapter.requestDevice();
    // Buffers of more bytes than `most` are not to be had, as WebGPU tells it.
    let most = Infinity;
    let scopes = [];
    const { createBuffer, pushErrorScope, popErrorScope } = GPUDevice.prototype;
    Object.assign(device, {
      createBuffer(given) {
        if (given.size <= most) return createBuffer.call(device, given);
        const scope = scopes.findLast((it) => it.filter === 'out-of-memory');
        if (scope) scope.error = { message: 'dawn/native/Buffer.cpp' };
        return createBuffer.call(device, given);
      },
      pushErrorScope(filter) {
        scopes.push({ filter });
        pushErrorScope.call(device, filter);
      },
      async popErrorScope() {
        const scope = scopes.pop();
        return (await popErrorScope.call(device)) ?? scope.error ?? null;
      },
    });
    const tell = [];
    most = 64;
    tell.push(await said(make('tiny.onnx', { device })));
    for (const preferredOutputLocation of ['cpu', 'gpu-buffer']) {
      most = Infinity;
      const session = await make('tiny.onnx', { device }, { preferredOutputLocation });
      const large = { x: new ort.Tensor('float32', new Float32Array(3 * 80 * 80), [1, 3, 80, 80]) };
      most = 70000;
      tell.push(await said(session.run(large)));
      most = Infinity;
      tell.push(await said(session.run(large)));
      await session.release();
    }
    device.destroy();
    return [tell, ort.memory()];
  });
  const [tell, held] = found;
  assert.match(tell[0], /^DeviceError: the weights do not fit on the device: the weight '.+' takes \d+ bytes, for which the device has no memory left$/);
  for (const k of [1, 3]) assert.match(tell[k], /^DeviceError: .*: the tensor .* of shape \[1, .*\] takes \d+ bytes, for which the device has no memory left$/);
  assert.deepEqual([tell[2], tell[4]], ['right', 'right']);
  assert.equal(held.buffers >= 0, true);
});

test('progress is told while bytes arrive, and a signal ends the creation', async () => {
  const found = await page.evaluate(async () => {
    const told = [];
    await (await make('large.onnx', { onProgress: (it) => told.push(it) })).release();
    await ort.clearCache();
    const before = ort.memory();
    const ends = [];
    const end = new AbortController();
    ends.push(await said(make('large.onnx', { signal: end.signal, onProgress: () => end.abort(new TypeError('enough')) })));
    ends.push(await said(make('large.onnx', { signal: end.signal })));
    ends.push(await said(make('large.onnx', { signal: 'x' })));
    const idle = new AbortController();
    const session = await make('tiny.onnx', { signal: idle.signal });
    idle.abort();
    (await ort.env.webgpu.device).destroy();
    ends.push(await said(session.run(x()))); // it is made: its signal says no more
    await session.release();
    await ort.clearCache();
    return [told, ends, before, ort.memory()];
  });
  const [told, ends, before, after] = found;
  // More where chunks arrive in parts, which the next test holds up in the middle of one.
  assert(told.length >= MANIFEST.weights.chunks.length, `${told.length} calls`);
  assert(told.every((it, k) => !k || it.loaded > told[k - 1].loaded));
  assert.deepEqual(told.at(-1), { loaded: MANIFEST.weights.bytes, total: MANIFEST.weights.bytes });
  assert.deepEqual(ends.slice(0, 2), ['TypeError: enough', 'TypeError: enough']);
  assert.match(ends[2], /^OptionError: .*signal is "x", it takes an AbortSignal/);
  assert.equal(ends[3], 'right');
  assert.deepEqual(after, before);
});

const CHUNK = '/large.onnx.wgpu/weights-002.bin';

test('a chunk that fails is asked for again, and one that breaks off goes on from there', async () => {
  const whole = bytesOf(CHUNK.slice(1));
  const half = whole.length >> 1;
  // Breaks off when the page has seen some of it, which it says by asking for /broken.
  const broken = () => ({ headers: { 'content-length': whole.length }, body: whole.subarray(0, half), broken: new Promise((resolve) => (end = resolve)) });
  const rest = (body) => ({ status: 206, headers: { 'content-range': `bytes ${half}-${whole.length - 1}/${whole.length}` }, body });
  let end;
  const ranges = [];
  const create = async (...answers) => {
    ranges.length = 0;
    let go;
    const broken = new Promise((resolve) => (go = resolve));
    server.intercept = async (path, request) => {
      if (path === '/broken') return go(), end?.(), { body: ' ' };
      // Chunks behind it wait until then: what the page has seen is of this one, and of those before it.
      if (path > CHUNK && path.endsWith('.bin')) await broken;
      if (path !== CHUNK) return FILES[path] && { body: FILES[path] };
      ranges.push(request.headers.range);
      return answers.shift();
    };
      const before = MANIFEST.weights.chunks.slice(0, 2).reduce((sum, it) => sum + (it.inflated ?? it.bytes), 0);
    const found = await page.evaluate(async (seen) => {
      let asked = false; // once, or a late call would break off the next answer
      const onProgress = ({ loaded }) => {
        if (loaded >= seen && !asked) void fetch('/broken');
        asked ||= loaded >= seen;
      };
      const result = await said(make('large.onnx', { onProgress }).then((it) => it.release()));
      await ort.clearCache();
      return result;
    }, before + half);
    assert.equal(found, 'right');
    return ranges;
  };
  const from = `bytes=${half}-`;
  assert.deepEqual(await create({ status: 503, body: '' }, broken(), rest(whole.subarray(half))), [undefined, undefined, from]);
  // A server that knows no ranges answers with all of it; one that has another version by now is asked from the beginning.
  assert.deepEqual(await create(broken(), { body: whole }), [undefined, from]);
  assert.deepEqual(await create(broken(), rest(new Uint8Array(whole.length - half)), undefined), [undefined, from, undefined]);
});

test('what is wrong with an answer is said', async () => {
  const create = (address) => page.evaluate((it) => said(make(it)), address);
  const answering = (instead) => {
    server.intercept = (path) => (FILES[path] ? { body: FILES[path] } : path === CHUNK ? instead : undefined);
    return create('large.onnx');
  };
  assert.match(await create('none.onnx'), /^ProgramError: none\.onnx cannot be fetched: 404 .*; put there what `wgpu-ep export` wrote/);
  assert.match(await answering({ status: 404, body: '' }), /weights-002\.bin cannot be fetched: 404 .*; put there what `wgpu-ep export` wrote/);
  assert.match(await answering({ status: 503, body: '' }), /weights-002\.bin cannot be fetched: 503 .*; its server fails: try again later/);
  assert.match(await answering({ body: '<!doctype html><title>app</title>' }), /weights-002\.bin cannot be fetched: the server answers with a page, so there is no such file/);
  // Another server, which allows nothing, and one that is not there.
  const other = await serve();
  const [, port] = other.url.match(/:(\d+)/);
  assert.match(await create(`http://127.0.0.1:${port}/tiny.onnx`), /its server has to send Access-Control-Allow-Origin for http:\/\/127\.0\.0\.1:\d+ \(CORS\)/);
  other.close();
  assert.match(await create('http://127.0.0.1:9/tiny.onnx'), /cannot be fetched: no server answers \(/);
});

test('a second visit without a network starts; with one, a new version is seen at once', async () => {
  const made = await page.evaluate(async () => {
    const session = await make('tiny.onnx');
    const [name] = session.outputNames;
    await session.release();
    return name;
  });
  await page.evaluate(() => {
    const { port1, port2 } = new MessageChannel();
    return new Promise((resolve) => {
      port1.onmessage = () => resolve();
      port2.postMessage(null);
    });
  });
  const silent = (path) => (FILES[path] ? { body: FILES[path] } : { broken: true, body: '' });
  server.intercept = silent;
  const again = await page.evaluate(async () => {
    const session = await make('tiny.onnx');
    const result = await said(session.run(x()));
    await session.release();
    return [session.outputNames[0], result, await said(make('types.onnx'))];
  });
  assert.deepEqual(again.slice(0, 2), [made, 'right']);
  assert.match(again[2], /^ProgramError: types\.onnx\.wgpu\/manifest\.json cannot be fetched: no server answers/);
  // A server that fails is as good as none; one that says it is gone is believed.
  server.intercept = (path) => (FILES[path] ? { body: FILES[path] } : { status: 503, body: '' });
  assert.equal(await page.evaluate(async () => said((await make('tiny.onnx')).release())), 'right');
  server.intercept = (path) => (FILES[path] ? { body: FILES[path] } : { status: 404, body: '' });
  assert.match(await page.evaluate(() => said(make('tiny.onnx'))), /404/);
  // What the server has now decides.
  const types = (path) => path.replace('/tiny.', '/types.');
  server.intercept = (path) => FILES[path] ? { body: FILES[path] } : path.startsWith('/tiny.onnx.wgpu/') ? { body: Buffer.from(bytesOf(types(path).slice(1))) } : undefined;
  const changed = await page.evaluate(async () => {
    const session = await make('tiny.onnx');
    await session.release();
    return session.inputNames;
  });
  assert.deepEqual(changed, ['a']);
  server.intercept = silent;
  assert.deepEqual(await page.evaluate(async () => (await make('tiny.onnx')).inputNames), ['a']);
});
