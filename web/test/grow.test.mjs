// Sizes that grow by one: which kernels later sizes take is known from the second step of this kind on, and nothing else is compiled.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { bytesOf } from './fixtures.mjs';
import { internals } from './internals.mjs';

const { Layouts, openPackage, defined, evaluate, follow, mentioned, needed } = await internals('testing');
const limits = {
  maxStorageBuffersPerShaderStage: 8, maxComputeInvocationsPerWorkgroup: 1024, maxComputeWorkgroupStorageSize: 1 << 15,
  maxStorageBufferBindingSize: 1 << 27, maxBufferSize: 1 << 28, minStorageBufferOffsetAlignment: 256, maxComputeWorkgroupSizeX: 1024,
};
const TARGETS = [
  { features: new Set(), limits, software: false }, { features: new Set(), limits, software: true },
  { features: new Set(['subgroups', 'discrete']), limits, software: false },
];

/** The symbols of a step with so many tokens in the caches, by the names that exporters give. */
const symbolsOf = (program, length, past) => program.symbols.map(({ name }) => {
  if (/batch/.test(name)) return 1;
  if (/past|cache/.test(name)) return past;
  return /total/.test(name) ? past + length : length;
});
/** The kernels of a step, as texts. */
const textsOf = (program, layout) => layout.steps.map(({ dispatch, variant }) => program.kernels[program.dispatches[dispatch].kernel].wgsl[variant]);

/** A program whose sizes are followed, and what is compiled for it, one after another. */
async function followed(file, has) {
  const { program } = await openPackage(bytesOf(file), has);
  const compiled = new Map(); // text to the number of the step that it was compiled behind
  const session = {};
  let step = 0;
  let open = 0;
  const gpu = { pipeline: async (kernel, variant) => {
    assert.equal(open++, 0, 'one at a time');
    const text = kernel.wgsl[variant];
    if (!compiled.has(text)) compiled.set(text, step);
    await undefined;
    open -= 1;
  } };
  const told = async (symbols, turns = 2000, fresh = true) => {
    step += 1;
    follow(session, program, gpu, symbols, fresh, [mentioned, needed, defined, evaluate], () => true);
    for (let k = 0; k < turns; k++) await undefined;
  };
  return { program, compiled, told };
}

for (const file of ['causal.wgpu', 'decoder.wgpu', 'stateless.wgpu']) {
  describe(file, () => {
    for (const [k, has] of TARGETS.entries()) {
      test(`${['for all', 'for software', 'for GPUs with memory of their own'][k]}: what later steps take is known by the end of the third one`, async () => {
        const { program, compiled, told } = await followed(file, has);
        const layouts = new Layouts(program);
        const cached = program.symbols.some(({ name }) => /past|cache/.test(name));
        const sizes = (tokens) => (cached ? symbolsOf(program, 1, tokens - 1) : symbolsOf(program, tokens, 0));
        let ahead = 0;
        for (const prompt of [9, 3]) {
          // That of the prompt is the first one, of which nothing is told.
          const first = prompt === 9 ? prompt + 1 : prompt + 2;
          for (const tokens of [prompt + 1, prompt + 2]) await told(sizes(tokens));
          const known = new Set([...compiled.keys(), ...textsOf(program, layouts.layout(sizes(first))), ...textsOf(program, layouts.layout(sizes(prompt + 2)))]);
          const count = compiled.size;
          let steps = 0;
          for (let tokens = prompt + 3; tokens < prompt + 700; tokens++) {
            let taken;
            try {
              taken = textsOf(program, layouts.layout(sizes(tokens)));
            } catch (error) {
              assert.equal(error.name, 'InputError'); // longer than the model takes
              break;
            }
            steps += 1;
            for (const text of taken) assert(known.has(text), `a text of ${tokens} tokens takes more`);
            if (tokens < prompt + 40) await told(sizes(tokens));
          }
          assert(steps > 50, `${steps} steps`);
          if (prompt === 9) {
            assert.equal(compiled.size, count, 'more is compiled later');
            ahead = compiled.size;
          }
        }
        assert(ahead > 0);
      });
    }
  });
}

test('where sizes change in another way, all is compiled that some sizes take; not while they grow', async () => {
  const { program, compiled, told } = await followed('causal.wgpu', TARGETS[0]);
  const all = new Set(program.dispatches.flatMap(({ kernel }) => program.kernels[kernel].wgsl));
  await told(symbolsOf(program, 1, 9));
  assert.equal(compiled.size, 0);
  await told(symbolsOf(program, 1, 10));
  const line = compiled.size;
  assert(line > 0 && line < all.size / 2, `${line} of ${all.size}`);
  for (const past of [11, 12, 13]) await told(symbolsOf(program, 1, past));
  assert.equal(compiled.size, line);
  await told(symbolsOf(program, 9, 0), 2000, false); // by a run that takes what others took
  assert.equal(compiled.size, line);
  await told(symbolsOf(program, 5, 0));
  assert(compiled.size > all.size / 2, `${compiled.size} of ${all.size}`);
});

test('what is compiled for other sizes waits while they grow', async () => {
  const { program, compiled, told } = await followed('causal.wgpu', TARGETS[0]);
  for (const past of [9, 10]) await told(symbolsOf(program, 1, past));
  const before = compiled.size;
  await told(symbolsOf(program, 5, 0), 10);
  const some = compiled.size;
  await told(symbolsOf(program, 5, 1), 0);
  await told(symbolsOf(program, 5, 2));
  const line = compiled.size;
  await told(symbolsOf(program, 5, 3));
  assert.equal(compiled.size, line);
  await told(symbolsOf(program, 7, 0));
  assert(before < some && line < compiled.size / 2, `${before}, ${some}, ${line}, ${compiled.size}`);
});

test('of a long line the next steps are looked through before they come', async () => {
  const { program, compiled, told } = await followed('growing.wgpu', TARGETS[1]);
  const long = program.kernels.find(({ label }) => label.startsWith('softmax')).wgsl[0]; // of rows of 8193 and more
  const seen = [];
  for (let n = 10; n < 8193; n++) {
    await told([n], n % 1024 < 8 ? 2000 : 1, false);
    if (compiled.has(long)) seen.push(n);
  }
  assert(seen[0] > 4000 && seen[0] < 8000, `from ${seen[0]} on`);
});
