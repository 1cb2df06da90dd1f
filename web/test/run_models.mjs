// Runs exported models as an application does: node run_models.mjs CASES.json. Each case is {model, inputs, output}, a path, by
// name {file, type, dims}, and where results go: OUTPUT.NUMBER. Prints one line of JSON for each: {model, outputs, reads}, how often
// the run waited for a buffer to be read, or {model, error}.

import { readFileSync, writeFileSync } from 'node:fs';
import { leave, useDawn } from './internals.mjs';

await useDawn();
const { InferenceSession, Tensor, memory } = await import('../dist/ort.wgpu.mjs');
const ARRAYS = {
  float32: Float32Array, float64: Float64Array, float16: globalThis.Float16Array ?? Uint16Array, int64: BigInt64Array, int32: Int32Array,
};
let reads = 0;
const { mapAsync } = GPUBuffer.prototype;
GPUBuffer.prototype.mapAsync = function (...args) {
  reads += 1;
  return mapAsync.apply(this, args);
};

for (const { model, inputs, output } of JSON.parse(readFileSync(process.argv[2], 'utf8'))) {
  try {
    const session = await InferenceSession.create(model, { executionProviders: ['webgpu'] });
    const feeds = Object.fromEntries(
      Object.entries(inputs).map(([name, { file, type, dims }]) => {
        const bytes = new Uint8Array(readFileSync(file));
        return [name, new Tensor(type, new (ARRAYS[type] ?? Uint8Array)(bytes.buffer), dims)];
      }),
    );
    reads = 0;
    const results = await session.run(feeds);
    const waited = reads;
    const outputs = Object.entries(results).map(([name, { type, dims, data }], k) => {
      writeFileSync(`${output}.${k}`, new Uint8Array(data.buffer, data.byteOffset, data.byteLength));
      return { name, type, dims };
    });
    await session.release();
    if (memory().bytes) throw new Error(`${memory().bytes} bytes are left on the device`);
    console.log(JSON.stringify({ model, outputs, reads: waited }));
  } catch (error) {
    console.log(JSON.stringify({ model, error: `${error.name}: ${error.message}` }));
  }
}
leave();
