// The package as npm installs it: a tarball, in an application that Vite builds and TypeScript checks, with its worker, its files
// that come later, and transformers.js on an alias.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { cpSync, mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { after, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';

const web = fileURLToPath(new URL('..', import.meta.url));
const app = mkdtempSync(`${tmpdir()}/wgpu-vite-`);
const run = (command, args, cwd) => execFileSync(command, args, { cwd, encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] });

const FILES = {
  'package.json': '{"type": "module", "private": true}',
  'index.html': '<!doctype html><script type="module" src="/main.ts"></script><script type="module" src="/pipelines.js"></script>',
  'main.ts': `
    import { InferenceSession, Tensor, benchmark, checkWebGPUSupport, generate, streamText, warmup, type Progress, type Times } from 'onnxruntime-ep-wgpu-web';
    import { InferenceSession as Common } from 'onnxruntime-common';

    const onProgress = ({ loaded, total }: Progress): void => console.log(loaded / total);
    const session: Common = await InferenceSession.create('model.onnx', { executionProviders: [{ name: 'webgpu', onProgress }, { name: 'wasm', model: 'model.onnx' }] });
    await warmup(session, { x: [1, 3] });
    const { y } = await session.run({ x: new Tensor('float32', new Float32Array(3), [1, 3]) });
    const times: Times = await benchmark(session, {}, 3);
    const tokens: AsyncGenerator<number> = generate(session, [1, 2], { temperature: 0.7, stopTokens: [0] });
    for await (const text of streamText({ decode: (it: number[]) => it.join() }, tokens)) console.log(text, times, y?.data, (await checkWebGPUSupport()).reason);
    const { useWorker } = await import('onnxruntime-ep-wgpu-web/proxy');
    useWorker({ transferInputs: true });
  `,
  'typed.ts': `
    /// <reference types="onnxruntime-ep-wgpu-web/client" />
    import address from './model.onnx?wgpu';
    import other from './model.onnx?override=batch=1&fp16&wgpu';
    const texts: string[] = [address, other];
    console.log(texts);
  `,
  'pipelines.js': "import { pipeline } from '@huggingface/transformers'; window.pipeline = pipeline;",
  'tsconfig.json': '{"compilerOptions": {"target": "ES2022", "module": "ESNext", "moduleResolution": "Bundler", "strict": true, "noEmit": true, "types": [], "lib": ["ES2022", "DOM", "DOM.Iterable", "ESNext.Disposable"], "skipLibCheck": false}, "include": ["main.ts", "typed.ts"]}',
  'vite.config.mjs': `export default {
    logLevel: 'warn',
    build: { target: 'es2022', minify: false },
    worker: { format: 'es' },
    resolve: { alias: { 'onnxruntime-web/webgpu': 'onnxruntime-ep-wgpu-web' } },
  };`,
};

before(() => {
  const [{ filename }] = JSON.parse(run('npm', ['pack', '--json', '--pack-destination', app, '--ignore-scripts'], web));
  const place = `${app}/node_modules/onnxruntime-ep-wgpu-web`;
  mkdirSync(place, { recursive: true });
  run('tar', ['-xzf', `${app}/${filename}`, '-C', place, '--strip-components=1'], app);
  // What npm would install beside it; copied, so that nothing is fetched.
  for (const name of ['onnxruntime-common', '@huggingface/transformers']) cpSync(`${web}node_modules/${name}`, `${app}/node_modules/${name}`, { recursive: true });
  for (const [name, text] of Object.entries(FILES)) writeFileSync(`${app}/${name}`, text);
});
after(() => rmSync(app, { recursive: true, force: true }));

test('the tarball has what it should, and no more', () => {
  const files = readdirSync(`${app}/node_modules/onnxruntime-ep-wgpu-web`, { recursive: true, withFileTypes: true }).filter((it) => it.isFile()).map((it) => it.name);
  assert(files.includes('LICENSE') && files.includes('README.md') && files.includes('index.d.ts'));
  const tools = readdirSync(`${web}tools`);
  assert.deepEqual(tools.filter((it) => !files.includes(it)), []);
  assert.deepEqual(files.filter((it) => /\.(ts|mjs|js)$/.test(it) && !/\.d\.ts$/.test(it) && !it.startsWith('ort.wgpu.') && !tools.includes(it)), []);
});

test('its types are right in strict TypeScript', () => {
  try {
    run(process.execPath, [`${web}node_modules/typescript/bin/tsc`, '-p', app], app);
  } catch (error) {
    assert.fail(error.stdout);
  }
});

test('Vite builds it with the worker and the files that come later, and takes it for transformers.js', () => {
  run(process.execPath, [`${web}node_modules/vite/bin/vite.js`, 'build'], app);
  const built = readdirSync(`${app}/dist/assets`);
  const text = built.filter((it) => it.endsWith('.js')).map((it) => readFileSync(`${app}/dist/assets/${it}`, 'utf8')).join('\n');
  for (const part of [/worker/, /host/, /generate/]) assert(built.some((it) => part.test(it)), `${part}: ${built}`);
  assert.match(text, /feature-extraction/); // of transformers.js
  assert.doesNotMatch(text, /from ['"]onnxruntime/);
  assert.deepEqual(built.filter((it) => it.endsWith('.wasm')), []);
});
