// The parts of a session's creation in Node with Dawn: `node bench/session.mjs EXPORT [SESSIONS] [NAME=SIZE ...]`, after `npm run build`.
// Prints the adapter and, for each session, milliseconds: when each part began and ended, how long its calls kept the thread, and CPU
// time. Free dimensions are 1, or what NAME=SIZE says. Each session has a process of its own. `DAWN` has options of the package
// `webgpu`: `backend=null` has no driver, so what is left is the library and what Dawn does before it generates code.

import { spawnSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { leave, useDawn } from '../test/internals.mjs';

const [, own, model, count = '3', ...sizes] = process.argv;
for (let k = 0; k < Number(count); k++) {
  const { status } = spawnSync(process.execPath, [own, model, '0', ...sizes], { stdio: 'inherit' });
  if (status) process.exit(status);
}
if (Number(count)) process.exit();

/** By name: when it began and ended, how many calls, and how long they kept the thread. */
const parts = new Map();
let origin = performance.now();
/** Measures a method; the part ends when what it promises is there. */
function measured(object, method, name) {
  const call = object[method];
  object[method] = function (...given) {
    const from = performance.now() - origin;
    const part = parts.get(name) ?? { begin: from, end: from, calls: 0, kept: 0 };
    parts.set(name, part);
    const ended = () => (part.end = performance.now() - origin);
    const result = call.apply(this, given);
    part.calls += 1;
    part.kept += ended() - from;
    result?.then?.(ended, () => undefined);
    return result;
  };
}

/** CPU milliseconds of the process and, on Linux, of this thread. */
function cpuTimes() {
  const { user, system } = process.cpuUsage();
  const file = `/proc/self/task/${process.pid}/schedstat`;
  return [(user + system) / 1000, existsSync(file) ? Number(readFileSync(file, 'utf8').split(' ')[0]) / 1e6 : NaN];
}

const gpu = await useDawn(process.env.DAWN?.split(' '));
const { InferenceSession, Tensor, env } = await import('../dist/ort.wgpu.mjs');
const { GPUAdapter, GPUDevice, GPUQueue } = globalThis;
const { createShaderModule } = GPUDevice.prototype;
let letters = 0;
GPUDevice.prototype.createShaderModule = function (descriptor) {
  letters += descriptor.code.length;
  return createShaderModule.call(this, descriptor);
};
const METHODS = [
  [gpu, 'requestAdapter', 'adapter'], [GPUAdapter.prototype, 'requestDevice', 'device'], [crypto.subtle, 'digest', 'digests'],
  [GPUDevice.prototype, 'createBuffer', 'buffers'], [GPUDevice.prototype, 'createShaderModule', 'modules'],
  [GPUDevice.prototype, 'createComputePipelineAsync', 'pipelines'], [GPUQueue.prototype, 'writeBuffer', 'writes'], [GPUQueue.prototype, 'submit', 'submits'],
];
for (const it of METHODS) measured(...it);

const freeDimensionOverrides = Object.fromEntries(sizes.map((it) => it.split('=')).map(([name, size]) => [name, Number(size)]));
const before = cpuTimes();
origin = performance.now();
const session = await InferenceSession.create(model, { executionProviders: ['webgpu'], freeDimensionOverrides });
const created = performance.now() - origin;
const [all, thread] = cpuTimes().map((it, k) => it - before[k]);
const feeds = Object.fromEntries(session.inputMetadata.map(({ name, type, shape }) => {
  const dims = shape.map((it) => (typeof it === 'number' ? it : 1));
  const values = new Array(dims.reduce((product, it) => product * it, 1)).fill(/64$/.test(type) ? 0n : 0);
  return [name, new Tensor(type, type === 'float16' ? new Uint16Array(values) : values, dims)];
}));
await session.run(feeds);
const first = performance.now() - origin;
const { vendor, architecture, description } = (await env.webgpu.device).adapterInfo;
const ms = (it) => it.toFixed(0).padStart(8);
console.log(`${[vendor, architecture, description].filter(Boolean).join(', ') || 'an adapter without a name'}; ${letters} characters of WGSL`);
console.log(`${'ms'.padEnd(10)}  begins    ends   calls  thread`);
for (const [name, { begin, end, calls, kept }] of parts) console.log(`${name.padEnd(10)}${ms(begin)}${ms(end)}${String(calls).padStart(8)}${ms(kept)}`);
console.log(`session after ${created.toFixed(0)} ms, first result after ${first.toFixed(0)}; CPU until the session ${all.toFixed(0)}, of this thread ${thread.toFixed(0)}\n`);
leave();
