// The same model with three libraries, each in a fresh worker, one after another; bars for what they took.

import { json } from './files.js';
import Runner from './bench-worker.js?worker';

const ENGINES = [
  { name: 'ours', title: 'This runtime, WebGPU', colour: 'var(--ours)' },
  { name: 'webgpu', title: 'onnxruntime-web, WebGPU', colour: 'var(--theirs)' },
  { name: 'wasm', title: 'onnxruntime-web, WebAssembly', colour: 'var(--wasm)' },
];
const CHARTS = [
  { key: 'first', title: 'First result', unit: (it) => (it >= 1000 ? `${(it / 1000).toFixed(2)} s` : `${it.toFixed(0)} ms`) },
  { key: 'steady', title: 'Steady run', unit: (it) => `${it.toFixed(it < 10 ? 2 : 1)} ms` },
  { key: 'bytes', title: 'Library, unpacked', unit: (it) => (it >= 1e6 ? `${(it / 1e6).toFixed(1)} MB` : `${(it / 1000).toFixed(0)} KB`) },
];
const byId = (id) => document.getElementById(id);
let models = [];

/** What an engine gives for a model: {first, steady, bytes} or {error}. */
function measure(engine, model, iterations) {
  return new Promise((resolve) => {
    const worker = new Runner();
    const done = (result) => {
      worker.terminate();
      resolve(result);
    };
    worker.onmessage = ({ data }) => done(data);
    worker.onerror = (event) => done({ error: event.message || 'the worker failed' });
    worker.postMessage({ engine, model, iterations, base: new URL('./', document.baseURI).href });
  });
}

function draw(results) {
  byId('charts').replaceChildren(...CHARTS.map(({ key, title, unit }) => {
    const chart = Object.assign(document.createElement('div'), { className: 'chart' });
    const list = document.createElement('dl');
    const most = Math.max(...results.map((it) => it?.[key] ?? 0), 1e-9);
    ENGINES.forEach((engine, k) => {
      const result = results[k];
      const row = document.createElement('div');
      const [name, bar, fill, value] = ['dt', 'dd', 'div', 'b'].map((it) => document.createElement(it));
      value.textContent = !result ? '…' : result.error ? 'failed' : unit(result[key]);
      if (result?.error) row.title = result.error;
      name.append(engine.title, value);
      fill.style.background = engine.colour;
      fill.style.width = `${result?.error || !result ? 0 : (100 * result[key]) / most}%`;
      bar.append(fill);
      row.append(name, bar);
      list.append(row);
    });
    chart.append(Object.assign(document.createElement('h3'), { textContent: title }), list);
    return chart;
  }));
}

async function run() {
  const model = models[byId('model').selectedIndex];
  byId('run').disabled = true;
  const results = [];
  draw(results);
  for (const { name, title } of ENGINES) {
    byId('bench-note').textContent = `${title} is running…`;
    results.push(await measure(name, model, 10));
    draw(results);
  }
  const failed = results.flatMap((it, k) => (it.error ? [`${ENGINES[k].title}: ${it.error}`] : []));
  const [{ sample = [] }] = results;
  const differences = results.flatMap((it) => (it.sample ?? []).map((x, k) => Math.abs(x - sample[k])));
  byId('bench-note').textContent = failed.length ? failed.join(' ') : `${model.title}: results differ by at most ${Math.max(...differences).toExponential(1)}.`;
  byId('run').disabled = false;
}

export async function start() {
  try {
    models = await json('./models/bench/models.json');
  } catch (error) {
    byId('bench-note').textContent = `There is nothing to measure: ${error.message}`;
    return;
  }
  byId('model').replaceChildren(...models.map((it) => Object.assign(document.createElement('option'), { textContent: `${it.title} (${(it.bytes / 1e6).toFixed(1)} MB)` })));
  byId('run').addEventListener('click', () => void run());
  for (const it of ['model', 'run']) byId(it).disabled = false;
  draw([]);
}
