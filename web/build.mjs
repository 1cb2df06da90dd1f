// Builds dist/: the library for bundlers, for pages (ESM and classic script), and its types. `node build.mjs`.
import { execFileSync } from 'node:child_process';
import { readFileSync, rmSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';

const here = fileURLToPath(new URL('.', import.meta.url));
const { version } = JSON.parse(readFileSync(`${here}package.json`, 'utf8'));

rmSync(`${here}dist`, { recursive: true, force: true });
const shared = {
  absWorkingDir: here,
  entryPoints: ['src/index.ts'],
  bundle: true,
  minify: true,
  target: 'es2022',
  define: { VERSION: JSON.stringify(version) },
  legalComments: 'none',
  logLevel: 'warning',
};
// What few pages need is a file of its own, fetched when it is asked for.
const LATER = { session: 'ort.wgpu.host.mjs', loop: 'ort.wgpu.generate.mjs', wasm: 'ort.wgpu.wasm.mjs', disk: 'ort.wgpu.disk.mjs' };
const later = {
  name: 'later',
  setup: ({ onResolve }) => onResolve({ filter: /\/(session|loop|wasm|disk)\.js$/ }, ({ kind, path }) =>
    kind === 'dynamic-import' ? { path: `./${LATER[path.match(/(\w+)\.js$/)[1]]}`, external: true } : undefined),
};
// Node prints the line of an error that nobody catches: it should be no screen of text. Pages save 3 % of bytes without.
const forNode = { lineLimit: 160 };
const module = (outfile, more = {}) => build({ ...shared, format: 'esm', plugins: [later], outfile: `dist/${outfile}`, ...more });
await Promise.all([
  // For bundlers and Node: shares the application's onnxruntime-common.
  module('ort.wgpu.mjs', { external: ['onnxruntime-common'], ...forNode }),
  // For pages without a bundler: onnxruntime-common is in it.
  module('ort.wgpu.bundle.min.mjs'),
  // The same with what comes later, for those who have no addresses: Pyodide.
  module('ort.wgpu.whole.min.mjs', { plugins: [] }),
  module('ort.wgpu.min.js', { format: 'iife', globalName: 'ort' }),
  // The same in a worker: what the page imports, and the worker, which has everything in it.
  module('ort.wgpu.proxy.mjs', { entryPoints: ['src/worker/proxy.ts'], external: ['onnxruntime-common'] }),
  module('ort.wgpu.proxy.bundle.min.mjs', { entryPoints: ['src/worker/proxy.ts'] }),
  module('ort.wgpu.worker.mjs', { entryPoints: ['src/worker/worker.ts'] }),
  module(LATER.session, { entryPoints: ['src/host/session.ts'], ...forNode }),
  module(LATER.loop, { entryPoints: ['src/generate/loop.ts'], ...forNode }),
  module(LATER.wasm, { entryPoints: ['src/fallback/wasm.ts'], ...forNode }),
  module(LATER.disk, { entryPoints: ['src/disk.ts'], ...forNode }),
]);
execFileSync(process.execPath, [`${here}node_modules/typescript/bin/tsc`, '-p', here], { stdio: 'inherit' });
