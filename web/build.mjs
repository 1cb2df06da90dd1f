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
const HOST = 'ort.wgpu.host.mjs';
const lazily = {
  name: 'lazily',
  setup: ({ onResolve }) => onResolve({ filter: /\/operators\.js$/ }, ({ kind }) => kind === 'dynamic-import' ? { path: `./${HOST}`, external: true } : undefined),
};
const module = (outfile, more = {}) => build({ ...shared, format: 'esm', plugins: [lazily], outfile: `dist/${outfile}`, ...more });
await Promise.all([
  // For bundlers and Node: shares the application's onnxruntime-common.
  module('ort.wgpu.mjs', { external: ['onnxruntime-common'] }),
  // For pages without a bundler: onnxruntime-common is in it.
  module('ort.wgpu.bundle.min.mjs'),
  module('ort.wgpu.min.js', { format: 'iife', globalName: 'ort' }),
  // The same in a worker: what the page imports, and the worker, which has everything in it.
  module('ort.wgpu.proxy.mjs', { entryPoints: ['src/worker/proxy.ts'], external: ['onnxruntime-common'] }),
  module('ort.wgpu.proxy.bundle.min.mjs', { entryPoints: ['src/worker/proxy.ts'] }),
  module('ort.wgpu.worker.mjs', { entryPoints: ['src/worker/worker.ts'] }),
  module(HOST, { entryPoints: ['src/host/operators.ts'] }),
]);
execFileSync(process.execPath, [`${here}node_modules/typescript/bin/tsc`, '-p', here], { stdio: 'inherit' });
