// The plugin for Vite in an application: models are exported when the page is built or served, once for each content and options,
// and the page runs them.

import assert from 'node:assert/strict';
import { appendFileSync, copyFileSync, existsSync, mkdirSync, mkdtempSync, readFileSync, readdirSync, realpathSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { after, before, beforeEach, describe, test } from 'node:test';
import { build, createServer, preview } from 'vite';
import { folder, samples } from '../fixtures.mjs';
import { launch, open, web } from './chromium.mjs';

const app = realpathSync(mkdtempSync(`${tmpdir()}/wgpu-plugin-`));
const cache = `${app}/node_modules/.cache/onnxruntime-ep-wgpu-web`;
const log = `${app}/exports`;
const MAIN = `
  import * as ort from 'onnxruntime-ep-wgpu-web';
  import tiny from './models/tiny.onnx?wgpu';
  import single from '@models/tiny.onnx?override=batch=1&single-file&with-onnx&wgpu';
  Object.assign(window, { ort, models: { tiny, single } });`;
const FILES = {
  'package.json': '{"type": "module", "private": true}',
  'index.html': '<!doctype html><meta charset="utf-8"><title>test</title><link rel="icon" href="data:,"><script type="module" src="/src/main.js"></script>',
  'src/main.js': MAIN,
  'vite.config.mjs': `
    import wgpu from 'onnxruntime-ep-wgpu-web/vite';
    export default { plugins: [wgpu()], base: '/of app/', logLevel: 'silent', build: { target: 'es2022' }, resolve: { alias: { '@models': '/src/models' } } };`,
};
const real = process.env.WGPU_EP_PYTHON || 'python3';
const entries = () => (existsSync(cache) ? readdirSync(cache).filter((it) => /^[\da-f]{64}$/.test(it)) : []);

let browser;
before(async () => {
  mkdirSync(`${app}/node_modules`);
  mkdirSync(`${app}/src/models`, { recursive: true });
  symlinkSync(web, `${app}/node_modules/onnxruntime-ep-wgpu-web`);
  for (const [name, text] of Object.entries(FILES)) writeFileSync(`${app}/${name}`, text);
  // The command, with a list of its calls.
  writeFileSync(`${app}/python`, `#!/bin/sh\necho "$*" >>"${log}"\nexec "${real}" "$@"\n`, { mode: 0o755 });
  process.env.WGPU_EP_PYTHON = `${app}/python`;
  browser = await launch();
});
after(async () => {
  process.env.WGPU_EP_PYTHON = real;
  await browser?.close();
  rmSync(app, { recursive: true, force: true });
});
beforeEach(() => {
  copyFileSync(`${folder}/tiny.onnx`, `${app}/src/models/tiny.onnx`);
  writeFileSync(`${app}/src/main.js`, MAIN);
  writeFileSync(log, '');
});

/** The calls of `wgpu-ep export` since the test began. */
const calls = () => readFileSync(log, 'utf8').split('\n').filter((it) => it.includes(' export '));
const built = (more = {}) => build({ root: app, configFile: `${app}/vite.config.mjs`, ...more });
const outside = { build: { outDir: `${app}/other`, emptyOutDir: true, write: false } };

/** What is wrong in a page with what the models give for the samples of `tiny`. */
async function differences(page) {
  const [{ feeds, wanted }] = samples({ Tensor: (await import('onnxruntime-common')).Tensor }, 'tiny');
  const plain = (tensors) => Object.entries(tensors).map(([name, it]) => [name, [...it.data], [...it.dims]]);
  return page.evaluate(async ([given, expected]) => {
    const found = [];
    for (const [model, address] of Object.entries(models)) {
      const session = await ort.InferenceSession.create(address, { executionProviders: ['webgpu'] });
      const results = await session.run(Object.fromEntries(given.map(([name, data, dims]) => [name, new ort.Tensor('float32', data, dims)])));
      for (const [name, data, dims] of expected) {
        if (`${results[name].dims}` !== `${dims}`) found.push(`${model}: ${name} has shape ${results[name].dims}`);
        data.forEach((it, k) => Math.abs(results[name].data[k] - it) <= 1e-4 || found.push(`${model}: element ${k} of ${name} is ${results[name].data[k]}, not ${it}`));
      }
      await session.release();
    }
    return found;
  }, [plain(feeds), plain(wanted)]);
}

describe('a page that is built', () => {
  test('has the exports beside its files, under its base, and runs them', async () => {
    await built();
    assert.equal(calls().length, 2);
    const server = await preview({ root: app, configFile: `${app}/vite.config.mjs`, preview: { port: 0 } });
    try {
      const page = await open(browser, server.resolvedUrls.local[0], () => window.models);
      const addresses = await page.evaluate(() => Object.values(models).map((it) => new URL(it, location.href).pathname));
      assert.match(addresses[0], /^\/of%20app\/assets\/tiny-[\da-f]{8}\/tiny\.onnx\.wgpu\/manifest\.json$/);
      assert.match(addresses[1], /^\/of%20app\/assets\/tiny-[\da-f]{8}\/tiny\.wgpu$/);
      assert.deepEqual(await differences(page), []);
      assert.deepEqual([page.problems, page.warnings], [[], []]);
      // --with-onnx: where a page without WebGPU looks for the model.
      assert.deepEqual(readFileSync(`${app}/dist/${decodeURI(addresses[1]).replace('/of app/', '').replace('tiny.wgpu', 'tiny.onnx')}`), readFileSync(`${folder}/tiny.onnx`));
    } finally {
      await server.close();
    }
  });

  test('takes what it made before, whatever the model is called by then, until its content changes', async () => {
    await built(outside);
    writeFileSync(log, '');
    await built(outside);
    assert.deepEqual(readFileSync(log, 'utf8'), '', 'no Python is started');
    const before = entries();
    // Behind the model, an unknown field: it is the same model of other bytes.
    appendFileSync(`${app}/src/models/tiny.onnx`, Buffer.from([0xa2, 0x06, 0x01, 0x61]));
    await built(outside);
    assert.equal(calls().length, 2);
    assert.equal(entries().length, before.length + 2);
    copyFileSync(`${folder}/tiny.onnx`, `${app}/src/models/tiny.onnx`);
    await built(outside);
    assert.equal(calls().length, 2, 'the one before is there still');
  });

  test('exports again for other options, and one model once however often it is imported', async () => {
    writeFileSync(`${app}/src/main.js`, "import a from './models/tiny.onnx?wgpu&override=batch=2'; import b from './other.js'; console.log(a, b);");
    writeFileSync(`${app}/src/other.js`, "export { default } from './models/tiny.onnx?override=batch=2&wgpu';");
    await built(outside);
    assert.deepEqual(calls().length, 1);
    assert.match(calls()[0], / --override batch=2 /);
    await built({ ...outside, configFile: false, plugins: [(await import('../../tools/vite.mjs')).default({ args: ['--chunk', '1MB'], cache: 'kept' })] });
    assert.match(calls()[1], /^-m onnxruntime_ep_wgpu export .*tiny\.onnx --chunk 1MB --override batch=2 --json --output /);
    assert(existsSync(`${app}/kept`));
  });

  test('weights that lie in files of their own count, too', async () => {
    for (const it of readdirSync(`${folder}/apart`)) copyFileSync(`${folder}/apart/${it}`, `${app}/src/models/${it}`);
    writeFileSync(`${app}/src/main.js`, "import a from './models/model.onnx?wgpu'; console.log(a);");
    for (const [change, count] of [[false, 1], [false, 1], [true, 2], [false, 2]]) {
      const data = readFileSync(`${app}/src/models/weights.bin`);
      if (change) writeFileSync(`${app}/src/models/weights.bin`, data.map((it) => it ^ 1));
      await built(outside);
      assert.equal(calls().length, count);
    }
  });

  const REFUSED = [
    ['what is no model', "import a from './models/text.onnx?wgpu'; console.log(a);", /RolldownError: \/.*\/models\/text\.onnx cannot be read as an ONNX model/],
    ['a model that is not there', "import a from './models/none.onnx?wgpu'; console.log(a);", /none\.onnx/],
    ['an option that there is not', "import a from './models/tiny.onnx?fp61&wgpu'; console.log(a);", /tiny\.onnx: unrecognized arguments: --fp61; did you mean --fp16/],
    ['an option that the plugin sets', "import a from './models/tiny.onnx?output=x&wgpu'; console.log(a);", /'output' cannot stand in an import: .*npx onnxruntime-ep-wgpu-web export/],
  ];
  for (const [what, text, message] of REFUSED) {
    test(`${what} is an error that says so, and nothing is kept`, async () => {
      writeFileSync(`${app}/src/models/text.onnx`, 'no model');
      writeFileSync(`${app}/src/main.js`, text);
      const before = readdirSync(cache);
      await assert.rejects(built(outside), message);
      assert.deepEqual(readdirSync(cache), before);
    });
  }

  test('without the Python package, the error has the line that installs it', async () => {
    writeFileSync(`${app}/src/main.js`, "import a from './models/tiny.onnx?override=batch=5&wgpu'; console.log(a);");
    process.env.WGPU_EP_PYTHON = `${app}/none`;
    try {
      await assert.rejects(built(outside), /tiny\.onnx: the Python package onnxruntime-ep-wgpu is not in .*install it with: (uv pip install --python .*none|.*none -m pip install) onnxruntime-ep-wgpu/);
    } finally {
      process.env.WGPU_EP_PYTHON = `${app}/python`;
    }
  });

  test('a Python package of another version is refused, with the one to install', async () => {
    writeFileSync(`${app}/src/main.js`, "import a from './models/tiny.onnx?override=batch=5&wgpu'; console.log(a);");
    writeFileSync(`${app}/old`, '#!/bin/sh\necho 0.0.1\n', { mode: 0o755 });
    process.env.WGPU_EP_PYTHON = `${app}/old`;
    try {
      await assert.rejects(built(outside), /onnxruntime-ep-wgpu is 0\.0\.1 in .*: install onnxruntime-ep-wgpu==\d+\.\d+\.\d+/);
    } finally {
      process.env.WGPU_EP_PYTHON = `${app}/python`;
    }
  });
});

test('in development the page has the exports, and those of the model that is there by now', async () => {
  const server = await createServer({ root: app, configFile: `${app}/vite.config.mjs`, server: { port: 0, host: '127.0.0.1' } });
  try {
    await server.listen();
    const [url] = server.resolvedUrls.local;
    const page = await open(browser, url, () => window.models);
    assert.deepEqual(await differences(page), []);
    const first = await page.evaluate(() => models.tiny);
    assert.match(first, /^\/of%20app\/@wgpu\/[\da-f]{64}\/tiny\.onnx\.wgpu\/manifest\.json$/);
    const status = (path) => page.evaluate(async (it) => (await fetch(it)).status, path);
    assert.equal(await status(first), 200);
    for (const path of [first.replace('manifest.json', 'none.bin'), first.replace('tiny.onnx.wgpu/manifest.json', '..%2f..%2fpackage.json'), first.replace('/manifest.json', ''), first.replace('manifest.json', '%E0')]) assert.equal(await status(path), 404);
    appendFileSync(`${app}/src/models/tiny.onnx`, Buffer.from([0xa2, 0x06, 0x01, 0x62]));
    await page.waitForFunction((it) => window.models && models.tiny !== it, first);
    assert.deepEqual(await differences(page), []);
    assert.deepEqual(page.problems.filter((it) => !it.includes('404')), []);
  } finally {
    await server.close();
  }
});
