// Builds dist/: the library for bundlers, for pages (ESM and classic script), and its types. `node build.mjs`.
import { execFileSync } from 'node:child_process';
import { cpSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';
import { minify } from 'terser';
import { pictures, withoutPictures } from './pictures.mjs';

const here = fileURLToPath(new URL('.', import.meta.url));
const { version } = JSON.parse(readFileSync(`${here}package.json`, 'utf8'));

rmSync(`${here}dist`, { recursive: true, force: true });
// Where a file lies is known to pages; bundlers would put a path of their machine there.
const DEFINE = { VERSION: JSON.stringify(version), HERE: '""' };
const shared = {
  absWorkingDir: here,
  entryPoints: ['src/index.ts'],
  bundle: true,
  minify: true,
  target: 'es2022',
  define: DEFINE,
  legalComments: 'none',
  logLevel: 'warning',
  write: false,
};
// What few pages need is a file of its own, fetched when it is asked for.
const LATER = {
  session: 'ort.wgpu.host.mjs', loop: 'ort.wgpu.generate.mjs', wasm: 'ort.wgpu.wasm.mjs', disk: 'ort.wgpu.disk.mjs', profile: 'ort.wgpu.profile.mjs',
  flow: 'ort.wgpu.flow.mjs', transposed: 'ort.wgpu.transposed.mjs', grow: 'ort.wgpu.grow.mjs', settings: 'ort.wgpu.settings.mjs', picture: 'ort.wgpu.picture.mjs', why: 'ort.wgpu.why.mjs',
  matrices: 'ort.wgpu.matrices.mjs', kept: 'ort.wgpu.kept.mjs',
};
const later = {
  name: 'later',
  setup: ({ onResolve }) => onResolve({ filter: /\/(session|loop|wasm|disk|profile|flow|transposed|grow|settings|why|matrices|kept)\.js$/ }, ({ kind, path }) =>
    kind === 'dynamic-import' ? { path: `./${LATER[path.match(/(\w+)\.js$/)[1]]}`, external: true } : undefined),
};
// Node prints the line of an error that nobody catches: it should be no screen of text. Pages save 3 % of bytes without.
const forNode = { lineLimit: 160 };
// Reading a property does nothing here, and functions are neither made with `new` nor asked for their length.
const COMPRESS = { passes: 5, keep_fargs: false, lhs_constants: false, pure_getters: true, unsafe_arrows: true, unsafe_methods: true };
/** What esbuild leaves, 4 % shorter with gzip. terser writes into the options that it is given. */
const shorter = async (text, isModule, lineLimit = false) =>
  (await minify(text, { module: isModule, ecma: 2022, compress: { ...COMPRESS }, format: { quote_style: 1, max_line_len: lineLimit } })).code;
/** Bundlers leave an import alone whose address is no text, where a comment says so; minifying takes comments away. */
const ignored = (text) => text.replace(/\bimport\((?=[\w$(])/g, 'import(/*webpackIgnore:true*//*@vite-ignore*/');
/**
 * A classic script of another server has no address of its own in `import()`: what comes later lies where the script does, which
 * in workers a stack trace alone tells.
 */
const BESIDE = String.raw`var BESIDE=(globalThis.document?.currentScript?.src||Error().stack?.match(/https?:[^\s)]+(?=:\d+:\d+)/)?.[0]||"").replace(/[^/]*([?#].*)?$/,"")||"./";`;
const classic = (text) => {
  const whole = text.replace(/^(?:'use strict';)?var ort=\(\(\)=>\{/, `$&${BESIDE}`).replace(/\bimport\('\.\//g, "import(BESIDE+'");
  if (whole.split('BESIDE').length !== 2 + Object.keys(LATER).length) throw new Error('the classic script has another form than expected');
  return whole;
};
const module = async (outfile, { finish = ignored, lineLimit, ...more } = {}) => {
  const { outputFiles } = await build({ ...shared, format: 'esm', plugins: [later, withoutPictures(LATER.picture)], ...more });
  writeFileSync(`${here}dist/${outfile}`, finish(await shorter(outputFiles[0].text, !more.globalName, lineLimit)));
};
/** As esbuild leaves it: tools read from its form, without running it, what a CommonJS module exports. */
const required = async (outfile, more) => {
  const { outputFiles } = await build({ ...shared, format: 'cjs', platform: 'node', plugins: [later], ...more });
  writeFileSync(`${here}dist/${outfile}`, ignored(outputFiles[0].text));
};
mkdirSync(`${here}dist`);
await Promise.all([
  // For bundlers and Node: shares the application's onnxruntime-common.
  module('ort.wgpu.mjs', { external: ['onnxruntime-common'], ...forNode }),
  // The same for `require`, which has an onnxruntime-common of its own.
  required('ort.wgpu.cjs', { external: ['onnxruntime-common'], ...forNode }),
  // For pages without a bundler: onnxruntime-common is in it.
  module('ort.wgpu.bundle.min.mjs'),
  // The same with what comes later, for those who have no addresses: Pyodide.
  module('ort.wgpu.whole.min.mjs', { plugins: [] }),
  module('ort.wgpu.min.js', { format: 'iife', globalName: 'ort', finish: classic }),
  // The same in a worker: what the page imports, and the worker, which has everything in it.
  module('ort.wgpu.proxy.mjs', { entryPoints: ['src/worker/proxy.ts'], external: ['onnxruntime-common'] }),
  module('ort.wgpu.proxy.bundle.min.mjs', { entryPoints: ['src/worker/proxy.ts'], define: { ...DEFINE, HERE: 'import.meta.url' } }),
  module('ort.wgpu.worker.mjs', { entryPoints: ['src/worker/worker.ts'] }),
  module(LATER.session, { entryPoints: ['src/host/session.ts'], ...forNode }),
  module(LATER.loop, { entryPoints: ['src/generate/loop.ts'], ...forNode }),
  module(LATER.wasm, { entryPoints: ['src/fallback/wasm.ts'], ...forNode }),
  module(LATER.profile, { entryPoints: ['src/profile.ts'], ...forNode }),
  module(LATER.flow, { entryPoints: ['src/flow/flow.ts'], ...forNode }),
  module(LATER.transposed, { entryPoints: ['src/transposed.ts'], ...forNode }),
  module(LATER.grow, { entryPoints: ['src/grow.ts'], ...forNode }),
  module(LATER.settings, { entryPoints: ['src/settings.ts'], ...forNode }),
  module(LATER.matrices, { entryPoints: ['src/matrices.ts'], ...forNode }),
  module(LATER.kept, { entryPoints: ['src/kept.ts'], ...forNode }),
  module(LATER.why, { entryPoints: ['src/why.ts'], ...forNode }),
  module(LATER.picture, { entryPoints: ['pictures'], plugins: [pictures] }),
  module(LATER.disk, { entryPoints: ['src/disk.ts'], ...forNode }),
]);
execFileSync(process.execPath, [`${here}node_modules/typescript/bin/tsc`, '-p', here], { stdio: 'inherit' });
// The types of what `require` gives: the nearest package.json says which kind of module they describe.
cpSync(`${here}dist/types`, `${here}dist/cjs`, { recursive: true });
writeFileSync(`${here}dist/cjs/package.json`, '{"type": "commonjs"}\n');
