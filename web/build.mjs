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
await Promise.all([
  // For bundlers and Node: shares the application's onnxruntime-common.
  build({ ...shared, format: 'esm', external: ['onnxruntime-common'], outfile: 'dist/ort.wgpu.mjs' }),
  // For pages without a bundler: everything in one file.
  build({ ...shared, format: 'esm', outfile: 'dist/ort.wgpu.bundle.min.mjs' }),
  build({ ...shared, format: 'iife', globalName: 'ort', outfile: 'dist/ort.wgpu.min.js' }),
]);
execFileSync(process.execPath, [`${here}node_modules/typescript/bin/tsc`, '-p', here], { stdio: 'inherit' });
