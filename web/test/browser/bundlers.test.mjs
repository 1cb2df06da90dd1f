// Applications that webpack and esbuild build of the package: without a warning, and with a worker and what comes later.

import assert from 'node:assert/strict';
import { copyFileSync, mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { after, before, test } from 'node:test';
import { promisify } from 'node:util';
import { build as esbuild } from 'esbuild';
import webpack from 'webpack';
import { serve } from '../fixtures.mjs';
import { EVERYTHING } from '../settings.mjs';
import { launch, open, web } from './chromium.mjs';

const app = mkdtempSync(`${tmpdir()}/wgpu-bundlers-`);
const MAIN = `
  import { InferenceSession, generate, useWasm } from 'onnxruntime-ep-wgpu-web';
  import * as proxy from 'onnxruntime-ep-wgpu-web/proxy';
  window.ort = { InferenceSession, generate, useWasm };
  window.proxy = proxy;`;
// What is imported first has the name 'webgpu': the page's own, or the worker.
const ENTRIES = { page: MAIN, worker: "import 'onnxruntime-ep-wgpu-web/proxy';" + MAIN };
let server;
let browser;
before(async () => {
  mkdirSync(`${app}/node_modules`);
  for (const [name, to] of [['onnxruntime-ep-wgpu-web', web], ['onnxruntime-common', `${web}node_modules/onnxruntime-common`]]) symlinkSync(to, `${app}/node_modules/${name}`);
  writeFileSync(`${app}/package.json`, '{"type": "module"}');
  for (const [name, text] of Object.entries(ENTRIES)) {
    writeFileSync(`${app}/${name}.js`, text);
    for (const bundler of ['webpack', 'esbuild']) {
      mkdirSync(`${app}/${bundler}/${name}`, { recursive: true });
      writeFileSync(`${app}/${bundler}/${name}/index.html`, '<!doctype html><meta charset="utf-8"><title>test</title><link rel="icon" href="data:,"><script type="module" src="main.js"></script>');
    }
  }
  server = await serve({ mounts: { '/app/': `${app}/` } });
  browser = await launch();
});
after(async () => {
  await browser?.close();
  server?.close();
  rmSync(app, { recursive: true, force: true });
});

const BUNDLERS = {
  async webpack(name) {
    const stats = await promisify(webpack)({
      mode: 'production', context: app, entry: `${app}/${name}.js`, performance: { hints: false },
      output: { path: `${app}/webpack/${name}`, filename: 'main.js', publicPath: 'auto' }, infrastructureLogging: { level: 'error' },
    });
    return [...stats.compilation.warnings, ...stats.compilation.errors].map(String);
  },
  async esbuild(name) {
    const { warnings } = await esbuild({
      entryPoints: [`${app}/${name}.js`], absWorkingDir: app, bundle: true, format: 'esm', minify: true, outfile: `${app}/esbuild/${name}/main.js`, logLevel: 'silent',
    });
    // As docs/web.md says.
    for (const file of ['worker', 'generate', 'host']) copyFileSync(`${web}dist/ort.wgpu.${file}.mjs`, `${app}/esbuild/${name}/ort.wgpu.${file}.mjs`);
    return warnings.map((it) => it.text);
  },
};

for (const [bundler, build] of Object.entries(BUNDLERS)) {
  for (const name of Object.keys(ENTRIES)) {
    if (!EVERYTHING && (bundler !== 'esbuild' || name !== 'worker')) continue;
    test(`${bundler}, in the ${name}`, async () => {
      assert.deepEqual(await build(name), []);
      const built = readdirSync(`${app}/${bundler}/${name}`).filter((it) => /\.m?js$/.test(it));
      for (const it of built) assert(!readFileSync(`${app}/${bundler}/${name}/${it}`, 'utf8').includes(app), `${it} names a path of this machine`);
      const page = await open(browser, `${server.url}app/${bundler}/${name}/index.html`, () => window.proxy);
      const found = await page.evaluate(async (inWorker) => {
        const session = await ort.InferenceSession.create('/causal.wgpu', { executionProviders: ['webgpu'] });
        const { generate, memory, useWasm } = inWorker ? proxy : ort;
        const tokens = [];
        for await (const token of generate(session, [1, 2, 3], { maxNewTokens: 2 })) tokens.push(token);
        const { bytes } = inWorker ? await memory() : { bytes: 1 };
        await session.release();
        useWasm(() => undefined);
        const wasm = await ort.InferenceSession.create('/tiny.onnx', { executionProviders: ['wasm'] }).catch(String);
        return { tokens: tokens.length, held: bytes > 0, wasm };
      }, name === 'worker');
      assert.deepEqual([found.tokens, found.held], [2, true]);
      assert.match(found.wasm, /^OptionError: useWasm: this is not a module of onnxruntime-web/);
      assert.deepEqual(page.problems, []);
    });
  }
}
