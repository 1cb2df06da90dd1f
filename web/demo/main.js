// Tabs, colours, the adapter, and the service worker that makes the page work offline. Each tab loads what it shows when it is
// opened first.

import { checkWebGPUSupport, env, useWasm } from 'onnxruntime-ep-wgpu-web/proxy';
import { json } from './files.js';

let tabs = [...document.querySelectorAll('[role=tab]')];
const opened = {
  search: () => import('./search.js'),
  detect: () => import('./detect.js'),
  speech: () => import('./speech.js'),
  chat: () => import('./chat.js'),
  bench: () => import('./bench.js'),
};
const started = new Set();

function select(tab, focus = false) {
  for (const it of tabs) {
    const chosen = it === tab;
    it.setAttribute('aria-selected', String(chosen));
    it.tabIndex = chosen ? 0 : -1;
    document.getElementById(it.getAttribute('aria-controls')).hidden = !chosen;
  }
  const name = tab.getAttribute('aria-controls');
  if (focus) tab.focus();
  history.replaceState(null, '', `#${name}`);
  if (!started.has(name)) {
    started.add(name);
    void opened[name]().then((module) => module.start());
  }
}

for (const tab of tabs) {
  tab.addEventListener('click', () => select(tab));
  tab.addEventListener('keydown', ({ key }) => {
    const k = tabs.indexOf(tab);
    const step = { ArrowRight: 1, ArrowLeft: -1, Home: -k, End: tabs.length - 1 - k }[key];
    if (step !== undefined) select(tabs[(k + step + tabs.length) % tabs.length], true);
  });
}

const root = document.documentElement;
const remembered = localStorage.getItem('theme');
if (remembered) root.dataset.theme = remembered;
document.getElementById('theme').addEventListener('click', () => {
  const dark = root.dataset.theme ? root.dataset.theme === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
  root.dataset.theme = dark ? 'light' : 'dark';
  localStorage.setItem('theme', root.dataset.theme);
});

/** What calculates: its name, and whether that is the processor in disguise. */
async function adapter() {
  const { info } = await navigator.gpu.requestAdapter();
  const name = info.description || [info.vendor, info.architecture].filter(Boolean).join(' ') || 'WebGPU';
  return { name, software: info.isFallbackAdapter || /swiftshader|llvmpipe|lavapipe|basic render/i.test(name) };
}

function notice(text) {
  const place = document.getElementById('notice');
  place.textContent = text;
  place.hidden = false;
}

/** The models that `models.py` wrote, with their packages and licences; the chat is there if it has a model. */
async function models() {
  const found = await json('./models/models.json').catch(() => ({}));
  if (!found.chat) tabs = tabs.filter((it) => it.id !== 'tab-chat');
  for (const it of tabs) it.hidden = false;
  const place = document.getElementById('models');
  place.textContent = Object.values(found).map(({ model, bytes, licence, registry, package: name, version }) =>
    `${model}: ${(bytes / 1e6).toFixed(0)} MB${registry ? `, ${licence}, from ${name} ${version} of ${registry}` : ''}.`).join(' ');
  place.hidden = !place.textContent;
}

/** On a first visit, waits until the service worker is there, which keeps what is fetched from then on for days without a network. */
async function keeping() {
  if (!('serviceWorker' in navigator) || !import.meta.env.PROD) return;
  try {
    const { installing, waiting } = await navigator.serviceWorker.register('./sw.js');
    const worker = installing ?? waiting;
    if (navigator.serviceWorker.controller || !worker) return;
    await new Promise((resolve) => {
      const ended = () => /activated|redundant/.test(worker.state) && resolve();
      worker.addEventListener('statechange', ended);
      ended();
    });
  } catch (error) {
    console.warn(`The page will not work offline: ${error.message}`);
  }
}

const [{ supported, reason }] = await Promise.all([checkWebGPUSupport(), keeping().then(models)]);
const badge = document.getElementById('adapter');
if (supported) {
  const { name, software } = await adapter();
  badge.textContent = software ? `No GPU: ${name}` : name;
  if (software) notice(`WebGPU runs on the processor here (${name}), which is slower than a GPU by far.`);
} else {
  badge.textContent = 'WebAssembly';
  notice(`Models cannot use WebGPU here: ${reason}. They run in WebAssembly, on the processor, and are larger to load.`);
  useWasm(new URL('./ort/ort.wasm.bundle.min.mjs', document.baseURI));
  env.wasm.wasmPaths = new URL('./ort/', document.baseURI).href;
}
badge.title = badge.textContent;
const named = () => tabs.find((it) => `#${it.getAttribute('aria-controls')}` === location.hash);
select(named() ?? tabs[0]);
addEventListener('hashchange', () => named() && select(named()));
