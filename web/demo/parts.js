// What several tabs have: elements by their ids, a bar of progress, and sessions that go on without WebGPU.

import { InferenceSession } from 'onnxruntime-ep-wgpu-web/proxy';
import { json } from './files.js';

export const byId = (id) => document.getElementById(id);

/** Shows how far a tab is, from 0 to 1, and a text; at 1 the bar goes. */
export function progress(tab, part, text) {
  const bar = byId(`${tab}-progress`);
  bar.hidden = part === 1;
  bar.setAttribute('aria-valuenow', String(Math.round(100 * part)));
  bar.firstElementChild.style.width = `${100 * part}%`;
  byId(`${tab}-note`).textContent = text;
}

/** Sessions of the models of a tab, `names` in its folder, on WebGPU or in WebAssembly; `told` gets the bytes of weights so far, and all. */
export async function open(tab, names, told, options = {}) {
  const folders = names.map((name) => `./models/${tab}/${name}.onnx.wgpu/`);
  for (const it of folders) await json(`${it}manifest.json`); // says how it gets there
  const counts = folders.map(() => ({ loaded: 0, total: 0 }));
  const sum = (key) => counts.reduce((all, it) => all + it[key], 0);
  return Promise.all(folders.map((folder, k) => InferenceSession.create(folder, {
    ...options,
    executionProviders: [{
      name: 'webgpu',
      onProgress: (count) => {
        counts[k] = count;
        told(sum('loaded'), sum('total'));
      },
    }, 'wasm'],
  })));
}

/** A text of megabytes while they arrive. */
export const megabytes = (loaded, total) => `Loading the model, ${(loaded / 2 ** 20).toFixed(0)} of ${(total / 2 ** 20).toFixed(0)} MB`;
