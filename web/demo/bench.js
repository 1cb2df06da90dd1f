// The same model with three libraries, each in a fresh worker, one after another; bars for what they took, and a text to share.

import { json } from './files.js';
import Runner from './bench-worker.js?worker';
import { byId, progress } from './parts.js';

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
const RUNS = 10;
let models = [];
let shared = ''; // text of the last results
let stop;

/** What an engine gives for a model: {first, steady, bytes} or {error}; `told` gets the number of the run that begins. */
function measure(engine, model, signal, told) {
  return new Promise((resolve, reject) => {
    const worker = new Runner();
    const done = (result) => {
      worker.terminate();
      resolve(result);
    };
    signal.addEventListener('abort', () => {
      worker.terminate();
      reject(signal.reason);
    });
    worker.onmessage = ({ data }) => ('run' in data ? told(data.run) : done(data));
    worker.onerror = (event) => done({ error: event.message || 'the worker failed' });
    worker.postMessage({ engine, model, iterations: RUNS, base: new URL('./', document.baseURI).href });
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

/** The results in words, for a message to somebody. */
function words(model, results) {
  const lines = ENGINES.flatMap(({ title }, k) => (results[k].error ? [] : [`${title}: ${CHARTS.map(({ key, title: of, unit }) => `${of.toLowerCase()} ${unit(results[k][key])}`).join(', ')}`]));
  return [`${model.title} on ${byId('adapter').title || byId('adapter').textContent}`, ...lines].join('\n');
}

async function run() {
  if (stop) {
    stop.abort();
    return;
  }
  const model = models[byId('model').selectedIndex];
  stop = new AbortController();
  byId('run').textContent = 'Cancel';
  for (const it of ['model', 'share']) byId(it).disabled = true;
  const results = [];
  draw(results);
  try {
    for (const [k, { name, title }] of ENGINES.entries()) {
      const part = (done) => (k + done) / ENGINES.length;
      progress('bench', part(0), `${title} is loading…`);
      results.push(await measure(name, model, stop.signal, (count) => progress('bench', part((count + 1) / (RUNS + 2)), `${title}, run ${count + 1} of ${RUNS + 1}`)));
      draw(results);
    }
    const failed = results.flatMap((it, k) => (it.error ? [`${ENGINES[k].title}: ${it.error}`] : []));
    const [{ sample = [] }] = results;
    const differences = results.flatMap((it) => (it.sample ?? []).map((x, k) => Math.abs(x - sample[k])));
    progress('bench', 1, failed.length ? failed.join(' ') : `${model.title}: results differ by at most ${Math.max(...differences).toExponential(1)}.`);
    shared = words(model, results);
  } catch (error) {
    progress('bench', 1, error.name === 'AbortError' ? 'Cancelled.' : error.message);
  }
  stop = undefined;
  byId('run').textContent = 'Run';
  byId('model').disabled = false;
  byId('share').disabled = !shared;
}

/** Hands the results and this page's address to what the device shares with, or to its clipboard. */
async function share() {
  const url = new URL('#bench', document.baseURI).href;
  try {
    if (navigator.share) await navigator.share({ title: document.title, text: shared, url });
    else {
      await navigator.clipboard.writeText(`${shared}\n${url}`);
      byId('bench-note').textContent = 'The results are on the clipboard.';
    }
  } catch (error) {
    if (error.name !== 'AbortError') byId('bench-note').textContent = `This cannot be shared: ${error.message}`;
  }
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
  byId('share').addEventListener('click', () => void share());
  for (const it of ['model', 'run']) byId(it).disabled = false;
  draw([]);
}
