// What can be wrong with an export, an option, an input or a browser is said by name, and nothing stays on the device.

import assert from 'node:assert/strict';
import { cpSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { after, afterEach, before, beforeEach, describe, test } from 'node:test';
import { bytesOf, folder as fixtures, samples, serve } from './fixtures.mjs';
import { internals, useDawn } from './internals.mjs';

const gpu = await useDawn();
const { BASELINE, Gpu, lack, openPackage, targetOf } = await internals('testing');
const ort = await import('../dist/ort.wgpu.mjs');
const { InferenceSession, Tensor, memory } = ort;
const options = (more = {}) => ({ executionProviders: ['webgpu'], ...more });
let server;
let held;
before(async () => {
  server = await serve();
  await ort.env.webgpu.device;
});
after(() => server.close());
beforeEach(() => {
  held = memory();
  server.log.length = 0;
  server.intercept = () => undefined;
});
afterEach(() => assert.deepEqual(memory(), held));

const refuses = (source, message, more) => assert.rejects(InferenceSession.create(source, options(more)), message);

describe('exports', () => {
  test('bytes of something else', async () => {
    await refuses(bytesOf('tiny.onnx'), /not an exported model.*wgpu-ep export/);
    await refuses(new Uint8Array(3), /not an exported model/);
  });

  test('truncated bytes', async () => {
    const whole = bytesOf('tiny.wgpu');
    for (const length of [10, 15, 40, whole.length - 60]) await refuses(whole.slice(0, length), /truncated|damaged|not an exported/);
  });

  test('a changed byte anywhere', async () => {
    const whole = bytesOf('chunks.wgpu');
    for (const place of [20, 60, whole.length - 9000, whole.length - 45, whole.length - 2]) {
      const bytes = whole.slice();
      bytes[place] ^= 1;
      await refuses(bytes, /damaged/);
    }
  });

  test('another format version', async () => {
    const bytes = bytesOf('tiny.wgpu');
    bytes[8] = 99;
    await refuses(bytes, /format version 99, this library reads \d+: export the model again/);
  });

  test('nothing at an address', async () => {
    await refuses(`${server.url}none.onnx`, /none\.onnx cannot be fetched: 404.*; nor can .*none\.onnx\.wgpu\/manifest\.json: 404/);
    await refuses(`${server.url}none.wgpu`, /none\.wgpu cannot be fetched: 404.*; nor can .*none\.wgpu\/manifest\.json: 404.*; put there what `wgpu-ep export` wrote$/);
    await refuses(`${server.url}none?v=3`, /none\?v=3 cannot be fetched: 404.*; nor can .*none\/manifest\.json\?v=3: 404.*; nor can .*none\.wgpu\/manifest\.json\?v=3: 404/);
  });
  test('a page where a file was asked for, as servers of single-page applications answer', async () => {
    server.intercept = (path) => (path.includes('none') ? { body: '\n<!doctype html><title>app</title>' } : undefined);
    for (const [name, file] of [['none.onnx', 'none.onnx'], ['none.wgpu', 'none.wgpu'], ['none.onnx.wgpu/', 'none.onnx.wgpu/manifest.json']]) {
      await refuses(server.url + name, new RegExp(`${file} cannot be fetched: the server answers with a page, so there is no such file`));
    }
    // The model is there, and was not exported.
    server.intercept = (path) => (path.includes('.wgpu/') ? { body: '<!doctype html>' } : undefined);
    await refuses(`${server.url}tiny.onnx`, /tiny\.onnx is not an exported model: make one/);
  });
  test('an ONNX model that was not exported', async () => {
    server.intercept = (path) => (path.includes('.wgpu/') ? { status: 404, body: '' } : undefined);
    await refuses(`${server.url}tiny.onnx`, /tiny\.onnx is not an exported model: make one .*, and serve the folder .*tiny\.onnx\.wgpu\/manifest\.json: 404/);
  });
  test('only the first bytes of such a model are fetched', async () => {
    let end;
    const broken = new Promise((done) => (end = done)); // its body ends only then
    const body = Buffer.concat([bytesOf('tiny.onnx'), new Uint8Array(1 << 20)]);
    server.intercept = (path) => (path.includes('.wgpu/') ? { status: 404, body: '' } : path.endsWith('tiny.onnx') ? { body, broken } : undefined);
    await refuses(`${server.url}tiny.onnx`, /tiny\.onnx is not an exported model/);
    end();
  });

  for (const file of ['conv.onnx.wgpu/weights-001.bin', 'chunks.onnx.wgpu/weights-001.bin.deflated']) {
    const folder = file.split('/')[0];
    for (const [what, instead, message] of [
      ['truncated on the way', (bytes) => ({ body: bytes.slice(0, -4) }), / is truncated: it has \d+ bytes of \d+/],
      ['longer than they were', (bytes) => ({ body: Buffer.concat([bytes, bytes]) }), / is damaged: it has more than the \d+ bytes/],
      ['changed on the way', (bytes) => ((bytes[7] ^= 1), { body: bytes }), / is damaged: its SHA-256/],
      ['missing', () => ({ status: 500, body: '' }), / cannot be fetched: 500/],
    ]) {
      test(`${file} is ${what}`, async () => {
        server.intercept = (path) => (path.endsWith(file) ? instead(bytesOf(file)) : undefined);
        await refuses(`${server.url}${folder}/manifest.json`, new RegExp(file.replaceAll('.', '\\.') + message.source));
      });
    }
  }

  for (const [what, change, message] of [
    ['of another version', (it) => (it.version += 1), /manifest\.json has format version 6, this library reads 5: export/],
    ['without programs', (it) => delete it.programs, /manifest\.json is damaged: it does not name its files/],
    ['without any program', (it) => (it.programs = []), /manifest\.json is damaged: it names no program/],
    ['without what programs need', (it) => it.programs.forEach((one) => delete one.targets), /manifest\.json is damaged: it names no program/],
    ['without weights', (it) => delete it.weights, /manifest\.json is damaged: it does not name its files/],
    ['without chunks', (it) => delete it.weights.chunks, /manifest\.json is damaged: it does not name its files/],
    ['with a chunk without a hash', (it) => delete it.weights.chunks[1].sha256, /manifest\.json is damaged: it does not name its files/],
    ['with fewer chunks', (it) => it.weights.chunks.pop(), /manifest\.json is damaged: its chunks have \d+ bytes/],
  ]) {
    test(`a manifest ${what}`, async () => {
      const manifest = JSON.parse(Buffer.from(bytesOf('chunks.onnx.wgpu/manifest.json')).toString());
      change(manifest);
      server.intercept = (path) => (path.endsWith('manifest.json') ? { body: JSON.stringify(manifest) } : undefined);
      await refuses(`${server.url}chunks.onnx`, message);
    });
  }

  for (const [what, change, message] of [
    ['another size', (chunks) => ((chunks[0].inflated -= 16), (chunks[1].inflated += 16)), /weights-000\.bin\.deflated is damaged: it has more/],
    ['more bytes', (chunks) => ((chunks[0].inflated += 16), (chunks[1].inflated -= 16)), /weights-00(0\.bin\.deflated is truncated: it has 4096 bytes of 4112|1\.bin\.deflated is damaged: it has more than 4080 bytes)/],
    ['what is not deflated', (chunks) => (chunks.at(-1).inflated = chunks.at(-1).bytes), /weights-003\.bin is damaged: /],
  ]) {
    test(`a manifest that tells ${what} of deflated weights`, async () => {
      const manifest = JSON.parse(Buffer.from(bytesOf('chunks.onnx.wgpu/manifest.json')).toString());
      change(manifest.weights.chunks);
      server.intercept = (path) => (path.endsWith('manifest.json') ? { body: JSON.stringify(manifest) } : undefined);
      await refuses(`${server.url}chunks.onnx`, message);
    });
  }

  for (const [what, change, message] of [
    ['a Program', ({ programs }) => programs.forEach((it) => (it.bytes = 2 ** 33)), /programs-software\.json\.deflated is truncated: it has \d+ bytes of 8589934592$/],
    ['a Program, past all memory', ({ programs }) => programs.forEach((it) => (it.bytes = 2 ** 52)), /programs-software\.json\.deflated is truncated: it has \d+ bytes of 4503599627370496$/],
    ['weights', ({ weights }) => ((weights.bytes += 2 ** 50 - weights.chunks[3].bytes), (weights.chunks[3].bytes = 2 ** 50)), /weights-003\.bin is truncated: it has 512 bytes of 1125899906842624$/],
    ['inflated weights', ({ weights }) => ((weights.bytes += 3e6 - weights.chunks[1].inflated), (weights.chunks[1].inflated = 3e6)), /weights-001\.bin\.deflated is truncated: it has 4096 bytes of 3000000$/],
  ]) {
    test(`a manifest with a large size of ${what}`, async () => {
      const manifest = JSON.parse(Buffer.from(bytesOf('chunks.onnx.wgpu/manifest.json')).toString());
      change(manifest);
      server.intercept = (path) => (path.endsWith('manifest.json') ? { body: JSON.stringify(manifest) } : undefined);
      await refuses(`${server.url}chunks.onnx`, (error) => error.name === 'ProgramError' && message.test(error.message));
      const folder = mkdtempSync(`${tmpdir()}/wgpu-sizes-`);
      try {
        cpSync(`${fixtures}/chunks.onnx.wgpu`, folder, { recursive: true });
        writeFileSync(`${folder}/manifest.json`, JSON.stringify(manifest));
        await refuses(`${folder}/`, (error) => error.name === 'ProgramError' && message.test(error.message));
      } finally {
        rmSync(folder, { recursive: true });
      }
    });
  }

  test('a program that needs more than the device has', async () => {
    server.intercept = (path) => {
      if (!path.endsWith('manifest.json')) return undefined;
      const manifest = JSON.parse(Buffer.from(bytesOf('tiny.onnx.wgpu/manifest.json')).toString());
      for (const it of manifest.programs.flatMap(({ targets }) => targets)) it.features = ['shader-unheard-of'];
      return { body: JSON.stringify(manifest) };
    };
    await refuses(`${server.url}tiny.onnx`, /needs the features shader-unheard-of, which this adapter lacks/);
  });

  test('progress is told up to the last byte', async () => {
    const told = [];
    const session = await InferenceSession.create(`${server.url}chunks.onnx`, {
      executionProviders: [{ name: 'webgpu', onProgress: (it) => told.push(it) }],
    });
    await session.release();
    const { total } = told[0];
    assert(told.length > 2 && told.every((it, k) => it.total === total && (!k || it.loaded > told[k - 1].loaded)));
    assert.equal(told.at(-1).loaded, total);
  });
});

describe('options', () => {
  for (const [more, message] of [
    [{ graphOptimizationLevel: 'most' }, /graphOptimizationLevel is "most", it takes "disabled", "basic"/],
    [{ executionMode: 3 }, /executionMode is 3/],
    [{ preferredLayout: 'HWC' }, /^OptionError: preferredLayout is "HWC", it takes "NCHW", "NHWC"$/],
    [{ freeDimensionOverrides: { batch: '2' } }, /'batch' is "2", a size is a whole number/],
    [{ preferredOutputLocation: 'texture' }, /preferredOutputLocation of 'y' is 'texture'/],
    [{ preferredOutputLocation: { z: 'cpu', x: 'cpu' } }, /no output 'z'; the outputs are y/],
    [{ freeDimensionOverrides: { bach: 1 } }, /no input has a free dimension 'bach'; the model has batch, height, width/],
    [{ freeDimensionOverrides: { batch: 0 } }, /'batch' is 0/],
    [{ executionProviders: [{ name: 'webgpu', preferredLayout: 'NCWH' }] }, /preferredLayout is "NCWH", it takes "NCHW", "NHWC"/],
    [{ executionProviders: [{ name: 'webgpu', layout: 'NCHW' }] }, /webgpu\.layout: there is no such option \(did you mean 'preferredLayout'\?\)$/],
    [{ executionProviders: [{ name: 'webgpu', preferedLayout: 'NCHW' }] }, /webgpu\.preferedLayout: .*\(did you mean 'preferredLayout'\?\)$/],
    [{ executionProviders: [{ name: 'webgpu', quux: 1 }] }, /webgpu\.quux: there is no such option; the options are name, device, onProgress, /],
    [{ extra: { ep: { webgpuexecutionprovider: { validationMode: 'all' } } } }, /ep\.webgpuexecutionprovider\.validationMode is "all"/],
    [{ extra: { 'ep.webgpu.enableInt65': '1' } }, /enableInt65: there is no such option \(did you mean 'enableInt64'\?\)$/],
    [{ executionProviders: [{ name: 'webgpu', forceCpuNodeNames: ['Conv_0'] }] }, undefined],
  ]) {
    test(JSON.stringify(more), async () => {
      if (message) await refuses(bytesOf('tiny.wgpu'), message, more);
      else await (await InferenceSession.create(bytesOf('tiny.wgpu'), options(more))).release();
    });
  }

  test('everything else that people write is taken', async () => {
    const session = await InferenceSession.create(bytesOf('tiny.wgpu'), {
      executionProviders: [{ name: 'webgpu', preferredLayout: 'NHWC', validationMode: 'basic', enableInt64: true, forceCpuNodeNames: [] }],
      graphOptimizationLevel: 'all', executionMode: 'sequential', enableMemPattern: false, enableCpuMemArena: true,
      enableProfiling: false, externalData: [], logSeverityLevel: 2, intraOpNumThreads: 4, preferredOutputLocation: { y: 'cpu', another: 'gpu-buffer' },
      freeDimensionOverrides: { batch: 1, height: 8, width: 8 },
      extra: { session: { use_env_allocators: '1' }, ep: { webgpu: { storageBufferCacheMode: 'bucket' } } },
    });
    await session.run(samples(ort, 'tiny')[0].feeds);
    await session.release();
  });

  test('values that are no JSON are said, too', async () => {
    const round = [];
    round.push({ round });
    for (const [device, message] of [[Promise.resolve(), /is \[object Promise\]/], [1n, /is 1,/], [round, /is \[object Object\]/], [Symbol('x'), /is Symbol\(x\)/]]) {
      await refuses(bytesOf('tiny.wgpu'), message, { executionProviders: [{ name: 'webgpu', device }] });
    }
  });

  test('a session option that there is not is a warning with the nearest one', async () => {
    const told = [];
    const { warn } = console;
    console.warn = (text) => told.push(text);
    try {
      const session = await InferenceSession.create(bytesOf('tiny.wgpu'), options({ enableGraphCpature: true, enableMemPattern: true }));
      await session.release();
    } finally {
      console.warn = warn;
    }
    assert.deepEqual(told, ["there is no session option 'enableGraphCpature' (did you mean 'enableGraphCapture'?)"]);
  });
});

test('errors have the names of their classes, whatever a bundler calls them', async () => {
  await assert.rejects(InferenceSession.create(new Uint8Array(3), options()), (error) => error.name === 'ProgramError' && error instanceof ort.ProgramError);
  await assert.rejects(InferenceSession.create(bytesOf('tiny.wgpu'), options({ executionMode: 3 })), { name: 'OptionError' });
});

describe('inputs', () => {
  let session;
  before(async () => (session = await InferenceSession.create(bytesOf('tiny.wgpu'), options())));
  after(() => session.release());
  const x = (dims, type = 'float32') => new Tensor(type, type === 'float32' ? new Float32Array(dims.reduce((a, b) => a * b)) : new Int32Array(dims.reduce((a, b) => a * b)), dims);
  for (const [what, feeds, message] of [
    ['of another type', () => ({ x: x([1, 3, 8, 8], 'int32') }), /'x' is int32, the model needs float32/],
    ['of another rank', () => ({ x: x([3, 8, 8]) }), /'x' has rank 3 \[3, 8, 8\], the model needs rank 4/],
    ['of another shape', () => ({ x: x([1, 4, 8, 8]) }), /'x' has 4 elements along axis 1, the model needs 3/],
    ['that is missing', () => ({}), /'x' is missing/],
    ['that there is not', () => ({ x: x([1, 3, 8, 8]), z: x([1]) }), /no input 'z'; the inputs are x/],
    ['that is no tensor', () => ({ x: [1, 2] }), /'x' is not a tensor/],
  ]) {
    test(what, async () => {
      const before = memory();
      await assert.rejects(session.run(feeds()), message);
      assert.deepEqual(memory(), before);
    });
  }

  test('a dimension that was fixed otherwise', async () => {
    const fixed = await InferenceSession.create(bytesOf('tiny.wgpu'), options({ freeDimensionOverrides: { batch: 2 } }));
    await assert.rejects(fixed.run({ x: x([1, 3, 8, 8]) }), /'x' has 1 elements along axis 0, the model needs 2/);
    await fixed.release();
  });

  test('a list that sets a shape and has too few or too many elements, in memory or in a buffer', async () => {
    const listed = await InferenceSession.create(bytesOf('listed.wgpu'), options());
    const [{ feeds: { x, repeats } }] = samples(ort, 'listed');
    const device = await ort.env.webgpu.device;
    const { STORAGE, COPY_DST, COPY_SRC } = globalThis.GPUBufferUsage;
    const buffer = device.createBuffer({ size: 40, usage: STORAGE | COPY_DST | COPY_SRC });
    device.queue.writeBuffer(buffer, 0, new BigInt64Array([...repeats.data, 1n, 1n]));
    const onGpu = (count) => Tensor.fromGpuBuffer(buffer, { dataType: 'int64', dims: [count] });
    for (const [count, message] of [[2, /'repeats' has 2 elements, the model takes at least 3$/], [0, /'repeats' has 0 elements/], [4, /is 3 numbers/]]) {
      const elements = new BigInt64Array(count).fill(1n);
      await assert.rejects(listed.run({ x, repeats: new Tensor('int64', elements, [count]) }), { name: 'InputError', message });
      await assert.rejects(listed.run({ x, repeats: onGpu(count) }), { name: 'InputError', message });
    }
    assert.deepEqual((await listed.run({ x, repeats: onGpu(3) })).y.dims, [4, 3, 6]);
    buffer.destroy();
    await listed.release();
  });

  test('sizes that no run can have are said with the sizes', async () => {
    const limited = await InferenceSession.create(bytesOf('elements.wgpu'), options());
    const wrong = { x: new Tensor('float32', new Float32Array(3), [3, 1]), shape: new Tensor('int64', [2n, 5n], [2]) };
    await assert.rejects(limited.run(wrong), /the inputs have .*shape\[0\] = 2/);
    await limited.release();
  });
});

describe('buffers that cannot be used', () => {
  const bytes = 4 * 192;
  const { STORAGE, COPY_DST } = globalThis.GPUBufferUsage;
  for (const [what, make, message] of [
    ['too small', (device) => device.createBuffer({ size: 64, usage: STORAGE }), /^InputError: the tensor 'x' takes 768 bytes, its buffer has 64: /],
    ['for copies alone', (device) => device.createBuffer({ size: bytes, usage: COPY_DST }), /^DeviceError: the run is refused by the device: /],
    ['of another device', async () => (await (await gpu.requestAdapter()).requestDevice()).createBuffer({ size: bytes, usage: STORAGE }), /^DeviceError: .*refused/],
    ['none at all', () => ({}), /^InputError: the tensor 'x' takes 768 bytes, its buffer has undefined: /],
  ]) {
    for (const preferredOutputLocation of ['cpu', 'gpu-buffer']) {
      test(`${what}, results in '${preferredOutputLocation}': told every time, and nothing is left`, async () => {
        const session = await InferenceSession.create(bytesOf('tiny.wgpu'), options({ preferredOutputLocation }));
        const run = async (x) => {
          const { y } = await session.run({ x });
          const data = [...(await y.getData())];
          y.dispose();
          return data;
        };
        try {
          const right = new Tensor('float32', new Float32Array(192).fill(0.5), [1, 3, 8, 8]);
          const wrong = Tensor.fromGpuBuffer(await make(await ort.env.webgpu.device), { dataType: 'float32', dims: [1, 3, 8, 8] });
          const found = await run(right);
          await run(right);
          const before = memory();
          for (let time = 0; time < 3; time++) await assert.rejects(run(wrong), message);
          assert(memory().bytes <= before.bytes, `${memory().bytes} bytes, ${before.bytes} before`);
          assert.deepEqual(await run(right), found);
        } finally {
          await session.release();
        }
      });
    }
  }
});

describe('what is no tensor, or no name', () => {
  const withTiny = (use) => async () => {
    const session = await InferenceSession.create(bytesOf('tiny.wgpu'), options());
    try {
      await use(session);
    } finally {
      await session.release();
    }
  };
  const pixels = () => new Tensor('float32', new Float32Array(192), [1, 3, 8, 8]);

  test('an array, or an object that looks like a tensor: what to pass instead', withTiny(async (session) => {
    for (const x of [new Float32Array(192), { type: 'float32', data: new Float32Array(192), dims: [1, 3, 8, 8] }, null]) {
      await assert.rejects(session.run({ x }), { name: 'InputError', message: /'x' is not a tensor: pass new Tensor\('float32', data, dims\)/ });
    }
  }));
  test('a tensor that was disposed of', withTiny(async (session) => {
    const x = pixels();
    x.dispose();
    await assert.rejects(session.run({ x }), /input 'x' is disposed of/);
  }));
  test('a texture, and a tensor of WebNN: read it; what was read is taken', withTiny(async (session) => {
    const data = new Float32Array(192).fill(0.5);
    const more = { download: async () => data, dispose: () => undefined };
    const there = {
      texture: Tensor.fromTexture({}, { width: 8, height: 3, ...more }),
      'ml-tensor': Tensor.fromMLTensor({}, { dataType: 'float32', dims: [1, 3, 8, 8], ...more }),
    };
    for (const [location, x] of Object.entries(there)) {
      const message = new RegExp(`'x' is at '${location}': pass a tensor of its getData\\(\\)`);
      await assert.rejects(session.run({ x }), { name: 'InputError', message });
      await assert.rejects(session.run({ x: pixels() }, { y: x }), { name: 'InputError', message: new RegExp(`the tensor passed for output 'y' is at '${location}': pass`) });
      await assert.rejects(InferenceSession.create(bytesOf('tiny.wgpu'), options({ preferredOutputLocation: location })), { name: 'OptionError', message: new RegExp(`preferredOutputLocation of 'y' is '${location}', it takes 'cpu' or 'gpu-buffer'`) });
    }
    const read = new Tensor('float32', await there['ml-tensor'].getData(), [1, 3, 8, 8]);
    assert.deepEqual((await session.run({ x: read })).y.data, (await session.run({ x: new Tensor('float32', data, [1, 3, 8, 8]) })).y.data);
  }));
  test('a tensor of another copy of onnxruntime-common is one', withTiny(async (session) => {
    const { Tensor: Other } = await import('../dist/ort.wgpu.bundle.min.mjs?another');
    const x = new Other('float32', new Float32Array(192).fill(0.5), [1, 3, 8, 8]);
    assert(!(x instanceof Tensor));
    const { y } = await session.run({ x });
    assert.deepEqual(y.data, (await session.run({ x: new Tensor('float32', x.data, x.dims) })).y.data);
    await ort.warmup(session, { x });
  }));
  test('a name that warmup does not know', withTiny(async (session) => {
    await assert.rejects(ort.warmup(session, { pixels: [1, 3, 8, 8] }), /there is no input 'pixels'; the inputs are x/);
  }));
  for (const name of ['webnn', 'webgl']) {
    test(`${name} is refused by name, and beside another one left out with a warning`, async () => {
      const create = (...executionProviders) => InferenceSession.create(bytesOf('tiny.wgpu'), { executionProviders });
      const message = `OptionError: there is no ${name} here: name 'webgpu', or import onnxruntime-web`;
      for (const entry of [name, { name, deviceType: 'gpu' }]) {
        await assert.rejects(create(entry), (error) => error.message.includes(message));
        const told = [];
        const { warn } = console;
        console.warn = (text) => told.push(text);
        try {
          await (await create(entry, 'webgpu')).release();
        } finally {
          console.warn = warn;
        }
        assert.deepEqual(told, [`removing requested execution provider "${name}" from session options because it is not available: ${message}`]);
      }
    });
  }
  test('a device that is none', async () => {
    for (const device of [{}, null, 'gpu']) {
      await assert.rejects(InferenceSession.create(bytesOf('tiny.wgpu'), { executionProviders: [{ name: 'webgpu', device }] }), { name: 'OptionError', message: /webgpu\.device is .*, it takes a GPUDevice/ });
    }
  });
});

describe('which Program is taken', () => {
  // Of what an export has for each kind of adapter.
  const limits = {
    maxStorageBuffersPerShaderStage: 8, maxComputeInvocationsPerWorkgroup: 256, maxComputeWorkgroupStorageSize: 16384,
    maxStorageBufferBindingSize: 1 << 27, maxBufferSize: 1 << 28, minStorageBufferOffsetAlignment: 256, maxComputeWorkgroupSizeX: 256,
  };
  const large = { ...limits, maxComputeInvocationsPerWorkgroup: 1024, maxComputeWorkgroupSizeX: 1024, maxComputeWorkgroupStorageSize: 1 << 15 };
  const [f16, subgroups] = ['shader-f16', 'subgroups'];
  for (const [has, wanted, wantedOfProducts] of [
    [{ features: new Set(), limits, software: false }, 'web-baseline', 'web-baseline'],
    [{ features: new Set([f16]), limits, software: false }, 'web-f16', 'web-f16'],
    [{ features: new Set([f16]), limits, software: true }, 'web-software', 'web-software'],
    [{ features: new Set([f16, subgroups]), limits, software: true }, 'web-software', 'web-software'],
    [{ features: new Set([subgroups]), limits: { ...limits, maxStorageBuffersPerShaderStage: 10 }, software: false }, 'web-subgroups', 'web-baseline'],
    [{ features: new Set([f16, subgroups, 'timestamp-query']), limits, software: false }, 'web-f16-subgroups', 'web-f16'],
    [{ features: new Set([subgroups]), limits: large, software: false }, 'web-subgroups', 'web-baseline'],
    [{ features: new Set([f16, subgroups]), limits: large, software: false }, 'web-f16-subgroups', 'web-large-f16'],
    [{ features: new Set([f16]), limits: { ...large, maxComputeWorkgroupStorageSize: 16384 }, software: false }, 'web-f16', 'web-f16'],
  ]) {
    test(`${[...has.features]} ${has.software ? 'on a CPU' : 'on a GPU'}: ${wanted}`, async () => {
      // `reduced` sums up rows; `half` is a product, in which subgroups change nothing.
      for (const [file, name] of [['reduced.wgpu', wanted], ['half.wgpu', wantedOfProducts]]) {
        const { program } = await openPackage(bytesOf(file), has);
        assert.equal(program.target.name, name);
        const texts = program.kernels.flatMap((it) => it.wgsl);
        for (const [enabled, part] of [['enable f16;', 'f16'], ['enable subgroups;', 'subgroups']]) {
          assert.equal(texts.some((text) => text.includes(enabled)), name.includes(part), enabled);
        }
      }
    });
  }
  test('matrix units are needed as they are written', async () => {
    const unit = [16, 16, 16, 'f16', 'f32', 32];
    const needs = targetOf({ ...BASELINE, matrices: [unit] });
    assert.equal(lack(needs, new Set(), limits, [[16, 8, 16, 'f16', 'f32', 32], unit]), undefined);
    for (const units of [undefined, [], [[16, 16, 16, 'f16', 'f16', 32]], [[16, 16, 16, 'f16', 'f32', 16]]]) {
      assert.match(lack(needs, new Set(), limits, units), /needs the matrix unit 16,16,16,f16,f32,32, which this adapter lacks/);
    }
  });
  test('products of bytes, and memory of its own, are what the vendor and the language tell of a GPU', () => {
    const { navigator } = globalThis;
    const featuresOf = (adapterInfo, language) => {
      Object.defineProperty(globalThis, 'navigator', { value: { gpu: { wgslLanguageFeatures: new Set(language) } }, configurable: true });
      return [...Gpu.of({ features: new Set(['subgroups']), limits, lost: new Promise(() => undefined), adapterInfo }).features];
    };
    const bytes = ['packed_4x8_integer_dot_product'];
    try {
      assert.deepEqual(featuresOf({ vendor: 'nvidia' }, bytes), ['subgroups', 'integer-dots', 'discrete']);
      assert.deepEqual(featuresOf({ vendor: 'nvidia' }, []), ['subgroups', 'discrete']);
      assert.deepEqual(featuresOf({ vendor: 'intel' }, bytes), ['subgroups', 'integer-dots']);
      for (const [info, language] of [[{ vendor: 'apple' }, bytes], [{ vendor: '' }, bytes], [undefined, bytes], [{ vendor: 'google', isFallbackAdapter: true }, bytes]]) {
        assert.deepEqual(featuresOf(info, language), ['subgroups']);
      }
    } finally {
      Object.defineProperty(globalThis, 'navigator', { value: navigator, configurable: true });
    }
  });
  test('a matrix unit that is none', () => {
    for (const units of [1, [1], [[16, 16, 16, 'f16', 'f32']], [[-1, 16, 16, 'f16', 'f32', 32]], [[16, 16, 1.5, 'f16', 'f32', 32]], [[16, 16, 16, ['f16'], 'f32', 32]], [[16, 16, 16, 'f16', 32, 32]]]) {
      assert.throws(() => targetOf({ ...BASELINE, matrices: units }), /is no|axes/, JSON.stringify(units));
    }
  });
  test('below the limits of all: an error with both numbers', async () => {
    const has = { features: new Set(), limits: { ...limits, maxStorageBuffersPerShaderStage: 4 }, software: false };
    await assert.rejects(openPackage(bytesOf('half.wgpu'), has), { name: 'LimitError', message: /maxStorageBuffersPerShaderStage 8, this adapter has 4/ });
  });
});

test('env.webgpu says which adapter, and with what preference one is asked for; env.wasm is left alone', async () => {
  const fresh = await import(`../dist/ort.wgpu.bundle.min.mjs?${Math.random()}`);
  const asked = [];
  const plain = gpu.requestAdapter;
  gpu.requestAdapter = (given) => (asked.push(given), plain.call(gpu, given));
  try {
    Object.assign(fresh.env.webgpu, { powerPreference: 'low-power', forceFallbackAdapter: true });
    fresh.env.wasm.numThreads = 3;
    const wasm = JSON.stringify(fresh.env.wasm);
    const device = await fresh.env.webgpu.device;
    assert.deepEqual(asked, [{ powerPreference: 'low-power', forceFallbackAdapter: true }]);
    const session = await fresh.InferenceSession.create(bytesOf('tiny.wgpu'), options());
    await session.release();
    assert.equal(await fresh.env.webgpu.device, device);
    assert.equal(JSON.stringify(fresh.env.wasm), wasm);
    device.destroy();
    // An adapter of the caller is used as it is.
    const other = await import(`../dist/ort.wgpu.bundle.min.mjs?${Math.random()}`);
    const adapter = await plain.call(gpu);
    const given = [];
    const request = adapter.requestDevice;
    adapter.requestDevice = (it) => (given.push(it.label), request.call(adapter, it));
    other.env.webgpu.adapter = adapter;
    (await other.env.webgpu.device).destroy();
    assert.deepEqual(given, ['onnxruntime-ep-wgpu-web']);
    assert.equal(asked.length, 1);
  } finally {
    delete gpu.requestAdapter;
  }
});

test('a wrong flag of env.webgpu is an error of the option, and none once it is mended', async () => {
  for (const [name, value, domain] of [
    ['powerPreference', 'max', /powerPreference is 'max', it takes 'low-power' or 'high-performance'/],
    ['adapter', {}, /adapter is .*, it takes that of WebGPU/],
  ]) {
    const fresh = await import(`../dist/ort.wgpu.bundle.min.mjs?${Math.random()}`);
    const create = (executionProviders) => fresh.InferenceSession.create(bytesOf('tiny.wgpu'), { executionProviders });
    fresh.env.webgpu[name] = value;
    assert.match((await fresh.checkWebGPUSupport()).reason, domain);
    for (const providers of [['webgpu'], ['webgpu', 'wasm']]) await assert.rejects(create(providers), { name: 'OptionError', message: domain });
    fresh.env.webgpu[name] = undefined;
    await (await create(['webgpu'])).release();
    (await fresh.env.webgpu.device).destroy();
  }
});

test('a device of env.webgpu that is none', () => {
  for (const device of [{}, 'gpu', 3]) {
    assert.throws(() => (ort.env.webgpu.device = device), { name: 'OptionError', message: /^env\.webgpu\.device is .*, it takes that of WebGPU/ });
  }
});

test('what is no session is said', async () => {
  const calls = [(it) => ort.generate(it, [1]).next(), (it) => ort.warmup(it), (it) => ort.benchmark(it, {})];
  for (const session of [undefined, null, 'model.onnx', Promise.resolve(), {}]) {
    for (const call of calls) await assert.rejects(call(session), { name: 'InputError', message: /is not a session: await InferenceSession\.create/ });
  }
});

describe('browsers without WebGPU', () => {
  const without = async (value, use) => {
    const fresh = await import(`../dist/ort.wgpu.bundle.min.mjs?${Math.random()}`);
    Object.defineProperty(globalThis, 'navigator', { value, configurable: true });
    try {
      await use(fresh);
    } finally {
      Object.defineProperty(globalThis, 'navigator', { value: { gpu }, configurable: true });
    }
  };
  test('no WebGPU at all: the reason is said, and the next provider takes over', () =>
    without({}, async (fresh) => {
      const { supported, reason } = await fresh.checkWebGPUSupport();
      assert(!supported && /no WebGPU here/.test(reason));
      await assert.rejects(fresh.InferenceSession.create(bytesOf('tiny.wgpu'), options()), /no available backend.*no WebGPU here/);
      const taken = [];
      const session = { inputNames: ['x'], outputNames: ['y'], release: async () => {} };
      const library = { InferenceSession: { create: async (uri, given) => (taken.push([uri, given]), session) }, Tensor: fresh.Tensor, env: { wasm: {} } };
      fresh.env.wasm.numThreads = 1;
      fresh.useWasm(async () => ({ default: library }));
      const created = await fresh.InferenceSession.create('https://example.org/model.onnx', {
        executionProviders: ['webgpu', 'wasm'], enableGraphCapture: true, preferredOutputLocation: 'gpu-buffer', graphOptimizationLevel: 'all',
      });
      assert.deepEqual(taken, [['https://example.org/model.onnx', { executionProviders: [{ name: 'wasm' }], graphOptimizationLevel: 'all' }]]);
      assert.equal(library.env.wasm.numThreads, 1);
      assert.deepEqual(created.inputNames, ['x']);
    }));
  test('no adapter', () =>
    without({ gpu: { requestAdapter: async () => null } }, async (fresh) => {
      const { reason } = await fresh.checkWebGPUSupport();
      assert.match(reason, /no adapter/);
      assert.doesNotMatch(reason, /browser/); // it may be Node
    }));
  test('an adapter below the baseline', () =>
    without({ gpu: { requestAdapter: async () => ({ features: new Set(), limits: { maxStorageBuffersPerShaderStage: 4 } }) } }, async (fresh) => {
      assert.match((await fresh.checkWebGPUSupport()).reason, /maxStorageBuffersPerShaderStage 8, this adapter has 4/);
    }));
});
