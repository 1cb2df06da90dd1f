// The package beside the onnxruntime-common that an application has already, of each version that package.json allows: npm adds no
// second copy, so the backend is known to the one that the application imports, and to the types that it has.

import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, realpathSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { after, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { EVERYTHING } from './settings.mjs';

const web = fileURLToPath(new URL('..', import.meta.url));
const read = (file) => JSON.parse(readFileSync(file, 'utf8'));
const { version, peerDependencies, devDependencies } = read(`${web}package.json`);
const NAMES = Object.keys(devDependencies).filter((it) => it.startsWith('onnxruntime-common'));
const versionOf = (name) => read(`${web}node_modules/${name}/package.json`).version;
const SORTED = [...NAMES].sort((a, b) => versionOf(a).localeCompare(versionOf(b), 'en', { numeric: true }));
/** Each takes ten seconds. */
const TRIED = EVERYTHING ? SORTED : [SORTED[0]];

const scratch = mkdtempSync(`${tmpdir()}/wgpu-common-`);
const run = (command, args, cwd) => execFileSync(command, args, { cwd, encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] });
let tarball;
before(() => {
  const [{ filename }] = JSON.parse(run('npm', ['pack', '--json', '--pack-destination', scratch, '--ignore-scripts'], web));
  tarball = `${scratch}/${filename}`;
});
after(() => rmSync(scratch, { recursive: true, force: true }));

/** A program of an application, as an ES module and for `require`. */
const PROGRAMS = {
  'main.mjs': `
  import { InferenceSession, Tensor } from 'onnxruntime-common';
  import { InferenceSession as Ours, memory } from 'onnxruntime-ep-wgpu-web';
  import assert from 'node:assert/strict';
  await run();
`,
  'main.cjs': `
  const { InferenceSession, Tensor } = require('onnxruntime-common');
  const { InferenceSession: Ours, memory } = require('onnxruntime-ep-wgpu-web');
  const assert = require('node:assert/strict');
  void run();
`,
};
const RUN = `async function run() {
  const { assertSame, folder, samples } = await import(${JSON.stringify(`${web}test/fixtures.mjs`)});
  const { leave, useDawn } = await import(${JSON.stringify(`${web}test/internals.mjs`)});
  assert.equal(InferenceSession, Ours);
  await useDawn();
  for (const preferredOutputLocation of ['cpu', 'gpu-buffer']) {
    const session = await InferenceSession.create(folder + '/tiny.onnx', { executionProviders: ['webgpu'], preferredOutputLocation });
    assert.deepEqual(session.inputMetadata.map((it) => it.name), [...session.inputNames]);
    for (const { feeds, wanted } of samples({ Tensor }, 'tiny')) {
      const results = await session.run(feeds);
      for (const [name, it] of Object.entries(wanted)) {
        assert.equal(results[name].location, preferredOutputLocation);
        await assertSame(results[name], it);
        results[name].dispose();
      }
    }
    await session.release();
  }
  assert.deepEqual(memory(), { buffers: 0, bytes: 0 });
  console.log('right');
  leave();
}`;
const TYPED = `
  import { InferenceSession, Tensor } from 'onnxruntime-common';
  import { generate, warmup, type Progress } from 'onnxruntime-ep-wgpu-web';
  import { useWorker } from 'onnxruntime-ep-wgpu-web/proxy';

  const onProgress = ({ loaded, total }: Progress): void => console.log(loaded / total);
  const session = await InferenceSession.create('model.onnx', { executionProviders: [{ name: 'webgpu', onProgress }] });
  await warmup(session, { x: new Tensor('float32', [1]) });
  for await (const token of generate(session, [1, 2])) console.log(token);
  useWorker({ transferInputs: true });
`;
/** Every place of the package, as the ways of finding modules that TypeScript has find it; the last one knows no `exports`. */
const PLACES = ['', '/bundle', '/proxy', '/proxy/bundle', '/worker', '/vite'];
const RESOLVED = `${PLACES.map((it, k) => `import * as at${k} from 'onnxruntime-ep-wgpu-web${it}';`).join('\n')}
  const sessions: unknown[] = [at0.InferenceSession, at1.InferenceSession, at2.useWorker, at3.useWorker, at4, at5.default({ args: ['--fp16'] })];
  console.log(sessions);
`;
const REQUIRED = `import ort = require('onnxruntime-ep-wgpu-web');
  const session: Promise<ort.InferenceSession> = ort.InferenceSession.create('model.onnx');
  const tokens: AsyncGenerator<number> = ort.generate(undefined as never, [1]);
  console.log(session, tokens, ort.default.Tensor);
`;
const WAYS = [['ESNext', 'Bundler'], ['Node16', 'Node16'], ['ESNext', 'node10']];
const CONFIG = {
  compilerOptions: {
    target: 'ES2022', module: 'ESNext', moduleResolution: 'Bundler', strict: true, noEmit: true, types: [], skipLibCheck: false,
    lib: ['ES2022', 'DOM', 'DOM.Iterable'],
  },
  include: ['main.ts'],
};

for (const name of TRIED) {
  test(`onnxruntime-common ${versionOf(name)}`, () => {
    const app = `${scratch}/${name}`;
    mkdirSync(app);
    const files = {
      'package.json': JSON.stringify({ type: 'module', private: true, dependencies: { 'onnxruntime-common': `file:${web}node_modules/${name}` } }),
      ...Object.fromEntries(Object.entries(PROGRAMS).map(([file, text]) => [file, text + RUN])), 'main.ts': TYPED, 'tsconfig.json': JSON.stringify(CONFIG), 'places.ts': RESOLVED, 'required.cts': REQUIRED,
    };
    for (const [module, moduleResolution] of WAYS) {
      const compilerOptions = { ...CONFIG.compilerOptions, module, moduleResolution, skipLibCheck: true };
      files[`${moduleResolution}.json`] = JSON.stringify({ compilerOptions, include: ['places.ts', ...(module === 'Node16' ? ['required.cts'] : [])] });
    }
    for (const [file, text] of Object.entries(files)) writeFileSync(`${app}/${file}`, text);
    run('npm', ['install', '--offline', '--ignore-scripts', '--install-links', '--no-audit', '--no-fund', '--no-package-lock', tarball], app);
    assert.equal(read(`${app}/node_modules/onnxruntime-common/package.json`).version, versionOf(name));
    assert(!existsSync(`${app}/node_modules/onnxruntime-ep-wgpu-web/node_modules`));
    assert.equal(run('npx', ['--no-install', 'onnxruntime-ep-wgpu-web', '--version'], app), `wgpu-ep ${version}\n`);
    for (const file of Object.keys(PROGRAMS)) {
      const { stdout, stderr } = spawnSync(process.execPath, [file], { cwd: realpathSync(app), encoding: 'utf8' });
      assert.equal(stdout.trim(), 'right', stderr);
    }
    const compiled = (compiler, project) => {
      try {
        run(process.execPath, [`${web}node_modules/${compiler}/bin/tsc`, '-p', project], app);
      } catch (error) {
        assert.fail(`${compiler}, ${project}: ${error.stdout}`);
      }
    };
    for (const compiler of ['typescript-5', 'typescript']) compiled(compiler, app);
    for (const [, way] of WAYS) compiled('typescript-5', `${app}/${way}.json`);
  });
}

test('what package.json allows begins with the oldest version that is tested', () => {
  assert.equal(peerDependencies['onnxruntime-common'].match(/^>=([\d.]+)/)[1], versionOf(SORTED[0]));
});
