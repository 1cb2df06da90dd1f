// One library with one model in a fresh page: what `measure.mjs` asks for, as JSON in window.result.

import { bare } from './bare.js';

const { library, model, runs, inputs } = await (await fetch('/job.json')).json();
const LIBRARIES = {
  ours: ['/dist/ort.wgpu.bundle.min.mjs', 'webgpu'],
  webgpu: ['/ort/ort.webgpu.bundle.min.mjs', 'webgpu'],
  wasm: ['/ort/ort.wasm.bundle.min.mjs', 'wasm'],
};

/** Numbers that look random and are the same everywhere, from -1 to 1. */
function numbers(count) {
  let state = 12345;
  return Float32Array.from({ length: count }, () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 31 - 1;
  });
}
const DISPATCHES = 200; // of the model `chain`
const CALLS = 100;
const [TURNS, PER_TURN] = [9, 50];
const QUICK = 1000; // milliseconds; runs that take longer are not repeated a hundred times
const median = (all) => all.toSorted((a, b) => a - b)[all.length >> 1];

async function main() {
  const [address, provider] = LIBRARIES[library];
  const ort = await import(address);
  if (library !== 'ours') {
    ort.env.wasm.wasmPaths = '/ort/';
    ort.env.logLevel = 'error';
  }
  const create = (more = {}) => ort.InferenceSession.create(`/models/${model}.onnx`, { executionProviders: [provider], ...more });
  const feeds = Object.fromEntries(Object.entries(inputs).map(([name, { dims, data }]) => [
    name, data ? new ort.Tensor('int64', BigInt64Array.from(data, BigInt), dims) : new ort.Tensor('float32', numbers(dims.reduce((a, b) => a * b, 1)), dims),
  ]));
  const session = await create();
  const [output] = session.outputNames;
  const { data } = (await session.run(feeds))[output];
  const first = performance.now(); // since navigation began
  const { all: firstCpu } = await window.cpuTimes();
  const times = [];
  for (let k = 0; k <= runs; k++) {
    const start = performance.now();
    await session.run(feeds);
    if (k) times.push(performance.now() - start);
  }
  const steadyCpu = ((await window.cpuTimes()).all - firstCpu) / (runs + 1);
  const found = { first, firstCpu, steady: median(times), steadyCpu, fastest: Math.min(...times), sample: Array.from(data.slice(0, 1000), Number) };
  const loaded = performance.getEntriesByType('resource');
  const bytes = (wanted) => loaded.filter(wanted).reduce((sum, it) => sum + it.decodedBodySize, 0);
  found.bytes = bytes((it) => /\.(m?js|wasm)$/.test(it.name) && !/(page|bare)\.js/.test(it.name));
  found.modelBytes = bytes((it) => it.name.includes('/models/'));
  await session.release();
  if (library !== 'wasm' && found.steady < QUICK) Object.assign(found, await calls(ort, await create({ preferredOutputLocation: 'gpu-buffer' }), feeds, output));
  const { description, vendor, architecture } = (await navigator.gpu.requestAdapter()).info;
  return { ...found, adapter: description || `${vendor} ${architecture}` };
}

/**
 * Milliseconds for a run between GPU buffers, for one input and one output: until `run` is done, which does not wait for the GPU,
 * and CPU of the page's thread, with what the browser does there. Of our library in turns with as many dispatches without one, and
 * of both again with dispatches of no workgroups: then a software adapter calculates nothing on the cores that the thread runs on.
 */
async function calls(ort, session, feeds, output) {
  const [[name, tensor], ...more] = Object.entries(feeds);
  if (more.length) return {};
  const device = await ort.env.webgpu.device;
  const usage = GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST;
  const onGpu = (dims) => {
    const size = Math.max(16, 4 * dims.reduce((a, b) => a * b, 1));
    return ort.Tensor.fromGpuBuffer(device.createBuffer({ size, usage }), { dataType: 'float32', dims });
  };
  const given = { [name]: onGpu(tensor.dims) };
  const wanted = { [output]: onGpu((await session.run(given))[output].dims) };
  const run = () => session.run(given, wanted);
  const measured = { cpu: run, ...(library === 'ours' && { bare: bare(device, DISPATCHES) }) };
  const found = {};
  const times = {};
  for (let k = 0; k < CALLS; k++) {
    for (const [key, call] of Object.entries(measured)) {
      const start = performance.now();
      await call();
      (times[key] ??= []).push(performance.now() - start);
      await device.queue.onSubmittedWorkDone();
    }
  }
  for (const [key, all] of Object.entries(times)) found[key] = median(all);
  const { prototype } = GPUComputePassEncoder;
  const { dispatchWorkgroups } = prototype;
  const none = function () {
    dispatchWorkgroups.call(this, 0);
  };
  const threads = {};
  for (let turn = 0; turn < TURNS; turn++) {
    for (const [key, call] of Object.entries(measured)) {
      for (const [kind, dispatch] of [['Thread', dispatchWorkgroups], ['Idle', none]]) {
        prototype.dispatchWorkgroups = dispatch;
        const { pages } = await window.cpuTimes();
        for (let k = 0; k < PER_TURN; k++) {
          await call();
          await device.queue.onSubmittedWorkDone();
        }
        (threads[key + kind] ??= []).push(((await window.cpuTimes()).pages - pages) / PER_TURN);
      }
    }
  }
  prototype.dispatchWorkgroups = dispatchWorkgroups;
  for (const [key, all] of Object.entries(threads)) found[key.replace(/^cpu(.)/, (_, first) => first.toLowerCase())] = median(all);
  return found;
}

window.result = await main().catch((error) => ({ error: String(error.message ?? error).slice(0, 500) }));
