// Tabs, colours, the adapter, and the service worker that makes the page work offline. Each tab loads what it shows when it is
// opened first.

import { checkWebGPUSupport } from 'onnxruntime-ep-wgpu-web/proxy';

const tabs = [...document.querySelectorAll('[role=tab]')];
const opened = {
  search: () => import('./search.js'),
  chat: () => import('./chat.js'),
  bench: () => import('./bench.js'),
};
const started = new Set();
let supported = false;

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
  if (supported && !started.has(name)) {
    started.add(name);
    void opened[name]().then((module) => module.start());
  }
}

for (const [k, tab] of tabs.entries()) {
  tab.addEventListener('click', () => select(tab));
  tab.addEventListener('keydown', ({ key }) => {
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

async function adapterName() {
  const { info } = await navigator.gpu.requestAdapter();
  return info.description || [info.vendor, info.architecture].filter(Boolean).join(' ') || 'WebGPU';
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

const [{ supported: usable, reason }] = await Promise.all([checkWebGPUSupport(), keeping()]);
const badge = document.getElementById('adapter');
if (usable) {
  supported = true;
  badge.textContent = await adapterName();
  badge.title = badge.textContent;
} else {
  badge.textContent = 'No WebGPU';
  const notice = document.getElementById('unsupported');
  notice.textContent = `These models need WebGPU: ${reason}.`;
  notice.hidden = false;
  // Their fields are disabled until a model is there.
  for (const note of ['search-note', 'speed', 'bench-note']) document.getElementById(note).textContent = 'This needs WebGPU.';
  document.getElementById('search-progress').hidden = true;
}
const named = () => tabs.find((it) => `#${it.getAttribute('aria-controls')}` === location.hash);
select(named() ?? tabs[0]);
addEventListener('hashchange', () => named() && select(named()));
