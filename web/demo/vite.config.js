// Builds the page into build/demo; the library is that of dist.

import { fileURLToPath } from 'node:url';

const dist = (file) => fileURLToPath(new URL(`../dist/${file}`, import.meta.url));

export default {
  root: fileURLToPath(new URL('.', import.meta.url)),
  base: './',
  build: { outDir: '../build/demo', emptyOutDir: true, target: 'es2022', chunkSizeWarningLimit: 1000 },
  worker: { format: 'es' },
  resolve: {
    alias: [
      { find: 'onnxruntime-ep-wgpu-web/proxy', replacement: dist('ort.wgpu.proxy.mjs') },
      { find: 'onnxruntime-ep-wgpu-web', replacement: dist('ort.wgpu.mjs') },
    ],
  },
};
