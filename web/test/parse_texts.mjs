// The texts of kernels parsed by the browser's compiler: `node parse_texts.mjs texts.json` prints what is wrong with each, as JSON.
import { readFileSync } from 'node:fs';
import { leave, useDawn } from './internals.mjs';

// A backend that runs nothing, and has every feature.
const adapter = await (await useDawn(['backend=null', 'enable-dawn-features=allow_unsafe_apis'])).requestAdapter();
const requiredFeatures = ['shader-f16', 'subgroups', 'chromium-experimental-subgroup-matrix'];
const device = await adapter.requestDevice({ requiredFeatures });
const found = [];
for (const text of JSON.parse(readFileSync(process.argv[2], 'utf8'))) {
  device.pushErrorScope('validation');
  const { messages } = await device.createShaderModule({ code: text }).getCompilationInfo();
  await device.popErrorScope();
  const errors = messages.filter((it) => it.type === 'error');
  found.push(errors.map((it) => `${it.lineNum}: ${it.message}: ${text.split('\n')[it.lineNum - 1]}`));
}
console.log(JSON.stringify(found));
leave();
