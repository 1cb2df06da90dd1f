// Tokens of a causal language model in Node with Dawn: `node bench/decode.mjs EXPORT [TOKENS] [CACHE]`, after `npm run build`. Prints
// milliseconds between tokens (median) and CPU time of the process for each, by how long the text is. `DAWN=backend=null` has no GPU: what is
// left is the time of the host, with tokens that mean nothing. CACHE is the length of caches that are updated in place; without, they grow.

import { useDawn } from '../test/internals.mjs';

const [, , model, count = '256', cache] = process.argv;
await useDawn(process.env.DAWN?.split(' '));
const { InferenceSession, generate } = await import('../dist/ort.wgpu.mjs');
const session = await InferenceSession.create(model, { executionProviders: ['webgpu'] });
const prompt = Array.from({ length: 16 }, (_, k) => 10 + ((k * 7919) % 50));
const options = { maxNewTokens: Number(count), ...(cache && { cacheLength: Number(cache) }) };
const STEPS = 50;

for (let turn = 0; turn < 3; turn++) {
  let [times, begun, cpu, length] = [[], performance.now(), process.cpuUsage(), prompt.length];
  for await (const _ of generate(session, prompt, options)) {
    const now = performance.now();
    times.push(now - begun);
    begun = now;
    length += 1;
    if (times.length < STEPS) continue;
    const { user, system } = process.cpuUsage(cpu);
    if (turn) console.log(`${length} tokens: ${times.sort((a, b) => a - b)[STEPS >> 1].toFixed(2)} ms, CPU ${((user + system) / 1000 / STEPS).toFixed(2)} ms`);
    [times, cpu] = [[], process.cpuUsage()];
  }
  if (turn) console.log();
}
process.exit(0);
