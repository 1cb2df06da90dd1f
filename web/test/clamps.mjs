// Compiles the kernels of a file, for the process that reads what Dawn prints of them: `node clamps.mjs FILE TOGGLES`.

import { readFileSync } from 'node:fs';
import { leave, useDawn } from './internals.mjs';

const gpu = await useDawn([`enable-dawn-features=${process.argv[3]}`]);
const device = await (await gpu.requestAdapter()).requestDevice();
for (const [k, { wgsl: code }] of JSON.parse(readFileSync(process.argv[2], 'utf8')).entries()) {
  console.log(`kernel ${k}`);
  device.pushErrorScope('validation');
  device.createComputePipeline({ layout: 'auto', compute: { module: device.createShaderModule({ code }), entryPoint: 'main' } });
  const error = await device.popErrorScope();
  if (error) console.log(`kernel ${k} does not compile: ${error.message}`);
}
leave();
