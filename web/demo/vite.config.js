// Builds the page into build/demo; the library is that of dist.

import { createHash } from 'node:crypto';
import { readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

const dist = (file) => fileURLToPath(new URL(`../dist/${file}`, import.meta.url));

/** Writes the service worker with a list of the files of this build, and a version that any change in them changes. */
const serviceWorker = {
  name: 'service-worker',
  apply: 'build',
  writeBundle({ dir }) {
    const source = readFileSync(new URL('sw.js', import.meta.url), 'utf8');
    const files = readdirSync(`${dir}/assets`, { recursive: true, withFileTypes: true }).filter((it) => it.isFile());
    const assets = files.map((it) => `assets/${it.name}`).sort();
    const hash = createHash('sha256').update(source);
    for (const file of ['index.html', ...assets]) hash.update(file).update(readFileSync(`${dir}/${file}`));
    const build = { version: hash.digest('hex').slice(0, 16), files: ['./', ...assets] };
    writeFileSync(`${dir}/sw.js`, `const BUILD = ${JSON.stringify(build)};\n${source}`);
  },
};

export default {
  root: fileURLToPath(new URL('.', import.meta.url)),
  base: './',
  plugins: [serviceWorker],
  build: { outDir: '../build/demo', emptyOutDir: true, target: 'es2022', chunkSizeWarningLimit: 1000 },
  worker: { format: 'es' },
  resolve: {
    alias: [
      { find: 'onnxruntime-ep-wgpu-web/proxy', replacement: dist('ort.wgpu.proxy.mjs') },
      { find: 'onnxruntime-ep-wgpu-web', replacement: dist('ort.wgpu.mjs') },
    ],
  },
};
