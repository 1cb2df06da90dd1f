// Text from causal language models: the tokens that Python gives, drawn ones with the right probabilities, ends of all kinds, and
// nothing left on the device.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { describe, test } from 'node:test';
import { bytesOf, folder } from './fixtures.mjs';
import { internals, useDawn } from './internals.mjs';
import { EVERYTHING, exhaustive } from './settings.mjs';

await useDawn();
const { Gpu, Sampler, dtype, generated } = await internals('testing');
const ort = await import('../dist/ort.wgpu.mjs');
const { InferenceSession, Tensor, env, generate, memory, streamText } = ort;
const { prompt, tokens: expected } = JSON.parse(readFileSync(`${folder}/causal.json`, 'utf8'));

// The device of all sessions, which counts the pipelines that are compiled and the bytes that may be read.
const device = await (await navigator.gpu.requestAdapter()).requestDevice();
let compiled = 0;
const read = [];
const plain = { compile: device.createComputePipelineAsync, buffer: device.createBuffer };
const compiling = new Set();
device.createComputePipelineAsync = (...given) => {
  compiled += 1;
  const made = plain.compile.apply(device, given);
  const done = made.finally(() => compiling.delete(done)).catch(() => undefined);
  compiling.add(done);
  return made;
};
device.createBuffer = (it) => (it.usage & GPUBufferUsage.MAP_READ && read.push(it.size), plain.buffer.call(device, it));
env.webgpu.device = device;

/** Waits until nothing is compiled any more. */
async function settled() {
  while (compiling.size) {
    await Promise.all(compiling);
    await new Promise(setImmediate); // the next one begins
  }
}

/** Runs `use` on a session, and asserts that nothing of it stays. */
async function withModel(name, use) {
  const held = memory();
  const session = await InferenceSession.create(bytesOf(`${name}.wgpu`), { executionProviders: ['webgpu'] });
  try {
    await use(session);
  } finally {
    await session.release();
  }
  assert.deepEqual(memory(), held);
}

async function collect(iterable) {
  const found = [];
  for await (const it of iterable) found.push(it);
  return found;
}

for (const name of ['causal', 'stateless']) {
  test(`${name}: tokens are those of the CPU provider, nothing else is read, nothing is compiled for the next ones`, () => {
    const before = compiled; // kernels are compiled from the session's creation on
    return withModel(name, async (session) => {
      const [steps, found] = [[], []];
      read.length = 0;
      for await (const token of generate(session, prompt, { maxNewTokens: 40 })) {
        found.push(token);
        if (found.length === 3) await settled(); // what the third step queued is compiled one after another
        steps.push(compiled);
      }
      assert.deepEqual(found, expected.slice(0, 40));
      assert.deepEqual(new Set(steps.slice(2)), new Set([compiled]));
      assert(steps[0] > before);
      assert.deepEqual(read, name === 'causal' ? [16, 16] : [16]); // one for the step that is on its way
      await settled();
      const all = compiled;
      assert.deepEqual(await collect(generate(session, prompt.map(BigInt), { maxLength: prompt.length + 3 })), expected.slice(0, 3));
      assert.deepEqual(await collect(generate(session, prompt, { maxNewTokens: 40 })), expected.slice(0, 40));
      assert.equal(compiled, all);
    });
  });
}

describe('several texts in one run', () => {
  const { batch } = JSON.parse(readFileSync(`${folder}/causal.json`, 'utf8'));
  const prompts = batch.map((it) => it.prompt);
  const columns = (steps) => prompts.map((_, text) => steps.map((it) => it[text]));

  test('each gets the tokens that it gets alone, whatever their lengths', () =>
    withModel('causal', async (session) => {
      const steps = await collect(generate(session, prompts, { maxNewTokens: 20 }));
      assert.deepEqual(columns(steps), batch.map((it) => it.tokens));
    }));

  test('each ends for itself', () =>
    withModel('causal', async (session) => {
      const stopTokens = [batch[1].tokens[5]];
      const told = [];
      const stop = (made, text) => (told.push([made.length, text]), text === 2 && made.length === 3);
      const steps = await collect(generate(session, prompts, { maxNewTokens: 12, stopTokens, stop }));
      const wanted = batch.map(({ tokens }, text) => {
        const end = tokens.slice(0, 12).indexOf(stopTokens[0]);
        return tokens.slice(0, Math.min(end < 0 ? 12 : end, text === 2 ? 3 : 12));
      });
      assert.deepEqual(columns(steps).map((it) => it.filter((token) => token !== undefined)), wanted);
      assert.equal(steps.length, Math.max(...wanted.map((it) => it.length)));
      assert(wanted[1].length < wanted[0].length && told.some(([, text]) => text === 0));
    }));

  test('the same seed draws the same tokens, and other ones for each text', () =>
    withModel('causal', async (session) => {
      const twice = [prompt, prompt];
      const run = () => collect(generate(session, twice, { maxNewTokens: 12, temperature: 5, seed: 3 }));
      const [first, again] = [await run(), await run()];
      assert.deepEqual(first, again);
      assert.notDeepEqual(first.map((it) => it[0]), first.map((it) => it[1]));
    }));

  test('what cannot be padded is an error', async () => {
    await withModel('stateless', async (session) => {
      await assert.rejects(collect(generate(session, prompts)), /different lengths, and the model has no input 'attention_mask'/);
      assert.equal((await collect(generate(session, [prompt, prompt], { maxNewTokens: 2 }))).length, 2);
    });
    await withModel('decoder', (session) => assert.rejects(collect(generate(session, [[1, 2], [1]])), /GroupQueryAttention has no mask for padding/));
    await withModel('static', (session) => assert.rejects(collect(generate(session, [[1], [1]])), /there are 2 texts, the model takes 1 in each run/));
  });
});

describe('caches of a fixed size', () => {
  const { prompts, tokens, cache } = JSON.parse(readFileSync(`${folder}/decoder.json`, 'utf8'));

  test('after the third step no buffer is made, no pipeline and no bind group', () =>
    withModel('static', async (session) => {
      const found = [];
      const made = [];
      const groups = [];
      const makeGroup = device.createBindGroup;
      const seen = device.createBuffer;
      device.createBuffer = (it) => (made.push(found.length), seen(it));
      device.createBindGroup = (it) => (groups.push(found.length), makeGroup.call(device, it));
      const before = compiled;
      let steady;
      try {
        for await (const token of generate(session, prompts[0], EVERYTHING ? {} : { maxNewTokens: 8 })) {
          found.push(token);
          if (found.length === 3) steady = [compiled, memory()];
        }
      } finally {
        device.createBuffer = seen;
        delete device.createBindGroup;
      }
      assert.deepEqual(found, EVERYTHING ? tokens[0] : tokens[0].slice(0, 8));
      if (EVERYTHING) assert.equal(found.length, cache - prompts[0].length); // up to the last place of the caches
      assert(compiled > before);
      assert.deepEqual(made.filter((step) => step >= 3), []);
      assert.deepEqual(groups.filter((step) => step >= 3), []);
      assert.equal(compiled, steady[0]);
    }));

  test('a cache of the length that is asked for is updated in place', exhaustive, () =>
    withModel('decoder', async (session) => {
      const bytes = [];
      const steps = await collect(generate(session, prompts, { cacheLength: cache, stop: () => (bytes.push(memory().bytes), false) }));
      assert.deepEqual(prompts.map((_, text) => steps.map((it) => it[text])), tokens);
      assert(Math.max(...bytes.slice(-40)) <= Math.max(...bytes.slice(0, -40)), bytes.join());
      // Without, caches grow; the tokens are the same.
      assert.deepEqual(await collect(generate(session, prompts[1], { maxNewTokens: 20 })), tokens[1].slice(0, 20));
    }));

  test('caches take the bytes of their type', async () => {
    const gpu = Gpu.of(device);
    const held = memory();
    const port = (name, type, shape) => ({ name, type, dtype: dtype(type), shape });
    const types = { float32: 4, float16: 2, int8: 1, uint8: 1, bfloat16: 2, uint4: 0.5 };
    const caches = Object.keys(types).map((type) => `.${type}.key`);
    const shape = (k) => [1, 2, k % 2 ? 32 : 'past', 16]; // of a fixed length, or of the one that is asked for
    let sizes;
    const model = {
      inputs: [port('input_ids', 'int64', ['batch', 'sequence']), ...caches.map((it, k) => port(`past_key_values${it}`, Object.keys(types)[k], shape(k)))],
      outputs: [port('logits', 'float32', ['batch', 'sequence', 8]), ...caches.map((it, k) => port(`present${it}`, Object.keys(types)[k], shape(k)))],
      operators: new Set(),
      gpu: async () => gpu,
      recycle: () => undefined,
      wrong: (message) => new Error(message),
      run: async (feeds) => {
        sizes = caches.map((it) => feeds[`past_key_values${it}`].buffer.size);
        throw new Error('seen');
      },
    };
    const settings = { maxLength: 4, limited: true, temperature: 0, topK: 0, topP: 1, seed: 0, stopTokens: [], feeds: {}, cacheLength: 32 };
    await assert.rejects(collect(generated(model, [[1, 2]], settings, {})), /^Error: seen$/);
    assert.deepEqual(sizes, Object.values(types).map((it) => it * 2 * 32 * 16));
    assert.deepEqual(memory(), held);
  });

  test('texts that do not fit are errors, and so is a cache that the model does not update', async () => {
    await withModel('static', async (session) => {
      await assert.rejects(collect(generate(session, prompts[0], { maxLength: cache + 1 })), /the caches have room for 64 tokens, and the text may have 65/);
      await assert.rejects(collect(generate(session, Array(cache + 1).fill(5))), /the caches have room for 64 tokens, the prompt has 65/);
    });
    await withModel('causal', async (session) => {
      await assert.rejects(collect(generate(session, prompt, { cacheLength: 64 })), /cannot update caches of 64 tokens in place, leave cacheLength out/);
      await assert.rejects(collect(generate(session, prompt, { cacheLength: 0 })), /cacheLength is 0, it takes a whole number/);
    });
  });
});

describe('a sequence that grows', () => {
  test('takes no buffer, no bind group and few bytes for a token', () =>
    withModel('causal', async (session) => {
      const counts = [];
      const { createBindGroup, createBuffer, queue } = device;
      const { writeBuffer } = queue;
      const count = (name, by = 1) => ((counts.at(-1)[name] ??= 0), (counts.at(-1)[name] += by));
      device.createBuffer = (it) => (count('buffers'), createBuffer.call(device, it));
      device.createBindGroup = (it) => (count('groups'), createBindGroup.call(device, it));
      queue.writeBuffer = (...given) => (count('writes'), count('bytes', given[4] ?? given[2].byteLength), writeBuffer.apply(queue, given));
      const found = [];
      try {
        counts.push({});
        for await (const token of generate(session, prompt, { maxNewTokens: 40 })) {
          found.push(token);
          counts.push({});
        }
      } finally {
        device.createBuffer = createBuffer;
        delete device.createBindGroup;
        delete queue.writeBuffer;
      }
      assert.deepEqual(found, expected.slice(0, 40));
      const steady = counts.slice(20, 40);
      const total = (name) => steady.reduce((sum, it) => sum + (it[name] ?? 0), 0);
      assert.deepEqual([total('buffers'), total('groups')], [0, 0], JSON.stringify(counts));
      // Two inputs, uniforms, shapes, and two for the sampler: ids stay on the GPU.
      assert(total('writes') <= 20 * 7 && total('bytes') <= 20 * 4096, JSON.stringify(steady));
    }));

  test('the next step is on its way when a token is read, but for the last one', () =>
    withModel('causal', async (session) => {
      const { queue } = device;
      const { submit } = queue;
      const [submits, found] = [[], []];
      let count = 0;
      queue.submit = (given) => ((count += 1), submit.call(queue, given));
      try {
        for await (const token of generate(session, prompt, { maxNewTokens: 20 })) {
          found.push(token);
          submits.push(count);
        }
      } finally {
        delete queue.submit;
      }
      assert.deepEqual(found, expected.slice(0, 20));
      // Two of a step, after those in which kernels are compiled.
      assert.deepEqual(submits.slice(10), [...Array.from({ length: 9 }, (_, k) => 2 * (12 + k)), 40]);
    }));

  test('results are those of a new session, whatever the sizes were before', async () => {
    const open = () => InferenceSession.create(bytesOf('causal.wgpu'), { executionProviders: ['webgpu'] });
    const sessions = [await open(), await open()];
    let state = 1;
    const floats = (length) => Float32Array.from({ length }, () => ((state = (state * 16807) % 2147483647) / 2147483647) * 4 - 2);
    const sizes = [[1, 3, 0], [1, 1, 3], [1, 1, 4], [1, 1, 40], [2, 1, 9], [1, 1, 2], [3, 2, 60], [1, 1, 100], [1, 1, 101], [1, 5, 1], [4, 1, 7], [1, 1, 5]];
    for (const [k, [batch, length, past]] of sizes.entries()) {
      const total = length + past;
      const integers = (dims, of) => new Tensor('int64', BigInt64Array.from({ length: dims[0] * dims[1] }, (_, i) => BigInt(of(i))), dims);
      const feeds = {
        input_ids: integers([batch, length], (i) => (7 * i + k) % 64), attention_mask: integers([batch, total], (i) => Number(i % 5 !== 3 || i % total >= past)),
        position_ids: integers([batch, length], (i) => past + (i % length)),
      };
      for (const { name, isTensor, shape } of sessions[0].inputMetadata) {
        if (!name.startsWith('past') || !isTensor) continue;
        const dims = [batch, shape[1], past, shape[3]];
        feeds[name] = new Tensor('float32', floats(dims.reduce((a, b) => a * b)), dims);
      }
      const fresh = await open();
      const wanted = await fresh.run(feeds);
      for (const session of sessions) {
        const results = await session.run(feeds);
        for (const name of fresh.outputNames) assert.deepEqual([results[name].dims, results[name].data], [wanted[name].dims, wanted[name].data], `${name} of ${sizes[k]}`);
      }
      await fresh.release();
    }
    for (const it of sessions) await it.release();
  });
});

test('two texts at once', () =>
  withModel('causal', async (session) => {
    const both = await Promise.all([8, 11].map((count) => collect(generate(session, prompt, { maxNewTokens: count }))));
    assert.deepEqual(both, [expected.slice(0, 8), expected.slice(0, 11)]);
  }));

test('a text of any length takes no more buffers', exhaustive, () =>
  withModel('causal', async (session) => {
    const held = [];
    for await (const _ of generate(session, prompt, { maxNewTokens: 64 })) held.push(memory().buffers);
    assert(Math.max(...held.slice(50)) <= Math.max(...held.slice(34, 50)), held.join());
  }));

describe('ends', () => {
  test('stop tokens are not given out, the token at which stop() is true is', () =>
    withModel('causal', async (session) => {
      const third = expected.indexOf(expected[3]);
      assert.deepEqual(await collect(generate(session, prompt, { stopTokens: [expected[3]] })), expected.slice(0, third));
      assert.deepEqual(await collect(generate(session, prompt, { stop: (made) => made.length === 5 })), expected.slice(0, 5));
      assert.deepEqual(await collect(generate(session, prompt, { maxNewTokens: 0 })), []);
    }));

  test('a loop that is left, and a signal', () =>
    withModel('causal', async (session) => {
      for await (const token of generate(session, prompt)) {
        assert.equal(token, expected[0]);
        break;
      }
      const abort = new AbortController();
      const found = [];
      await assert.rejects(async () => {
        for await (const token of generate(session, prompt, { signal: abort.signal })) {
          found.push(token);
          if (found.length === 4) abort.abort();
        }
      }, { name: 'AbortError' });
      assert.deepEqual(found, expected.slice(0, 4));
    }));
});

test('the logits are the output of that name, whatever else has their shape', async () => {
  await withModel('hidden-first', async (session) => {
    assert.deepEqual(session.outputNames, ['last_hidden_state', 'logits']);
    assert.deepEqual(await collect(generate(session, [3], { maxNewTokens: 6 })), [4, 5, 6, 7, 0, 1]);
  });
  for (const [name, message] of [
    ['hidden', /^InputError: generate needs an output 'logits' \(batch, sequence, vocabulary\), and the model has last_hidden_state: is it a causal/],
    ['logits-flat', /^InputError: generate: 'logits' is float32 \[batch, 8\], it has to be float32 or float16 \(batch, sequence, vocabulary\)/],
    ['logits-int', /^InputError: generate: 'logits' is int32 \[batch, n, 8\], it has to be/],
  ]) {
    await withModel(name, (session) => assert.rejects(collect(generate(session, [3])), message));
  }
});

test('wrong options and models are errors with the way out', async () => {
  await withModel('causal', async (session) => {
    for (const tokens of [undefined, null, [], [[]], 5]) await assert.rejects(collect(generate(session, tokens)), /^OptionError: generate: the prompt has no tokens/);
    for (const [given, message] of [
      [{ temperature: -1 }, /temperature is -1, it takes a number from 0 on/],
      [{ topP: 0 }, /topP is 0/],
      [{ topK: 1.5 }, /topK is 1.5/],
      [{ topP: '0.5' }, /topP is 0.5, it takes a probability/],
      [{ temperature: Infinity }, /temperature is Infinity/],
      [{ cacheLength: 0 }, /cacheLength is 0/],
      [{ stopTokens: 5 }, /^OptionError: generate: stopTokens is 5, it takes a list of tokens$/],
      [{ stop: 'end' }, /^OptionError: generate: stop is end, it takes a function$/],
      [{ signal: {} }, /^OptionError: generate: signal is .*, it takes an AbortSignal$/],
      [{ feeds: 1 }, /^OptionError: generate: feeds is 1, it takes tensors by name$/],
      [{ maxTokens: 3 }, /no option 'maxTokens' \(did you mean 'maxNewTokens'\?\)$/],
      [{ feeds: { other: new Tensor('float32', [1], [1]) } }, /no input 'other'; the inputs are input_ids/],
    ]) {
      await assert.rejects(collect(generate(session, prompt, given)), message);
    }
    for (const none of [[], new Tensor('int64', [3], [1, 1])]) {
      await assert.rejects(collect(generate(session, none)), /the prompt has no tokens; pass numbers/);
    }
    await assert.rejects(collect(generate(session, [3, undefined])), /token 1 of the prompt is undefined/);
  });
  await withModel('state', async (session) => {
    await assert.rejects(collect(generate(session, prompt)), /does not know what to give the input 'state': pass it as feeds/);
  });
});

describe('sampling', () => {
  /** Which tokens are drawn: [token, probability], in order. */
  function distribution(logits, { temperature, topK, topP }) {
    const order = [...logits.keys()].filter((k) => !Number.isNaN(logits[k])).sort((a, b) => logits[b] - logits[a]);
    let kept = topK ? order.slice(0, topK) : order;
    const weight = (k) => Math.exp((logits[k] - logits[order[0]]) / temperature);
    const wanted = topP * kept.reduce((sum, k) => sum + weight(k), 0);
    let sum = 0;
    kept = kept.filter((k) => (sum < wanted ? ((sum += weight(k)), true) : false));
    return kept.sort((a, b) => a - b).map((k) => [k, weight(k) / sum]);
  }

  async function draw(sampling, words, first, count, chances, half) {
    const gpu = Gpu.of(await env.webgpu.device);
    const sampler = new Sampler(gpu, half, true, sampling, 1);
    const buffer = gpu.storage(words.byteLength, 'logits');
    gpu.write(buffer, 0, new Uint8Array(words.buffer, words.byteOffset, words.byteLength));
    const found = [];
    for (const chance of chances) found.push(...(await (await sampler.next(buffer, { first, step: 0, count }, [chance]))()));
    gpu.free(buffer);
    sampler.release();
    return found;
  }

  /** Different numbers that look random. */
  const numbers = (count, scale) => Float32Array.from({ length: count }, (_, k) => scale * Math.sin(12.9898 * (k + 1)) * ((k * 7919) % 31) / 31);
  const CHANCES = [0, 0.05, 0.2, 0.37, 0.5, 0.66, 0.81, 0.93, 0.9999];

  for (const [count, first] of EVERYTHING ? [[5, 0], [256, 3], [3001, 1]] : [[3001, 1]]) {
    for (const sampling of [
      { temperature: 1, topK: 0, topP: 1 }, { temperature: 0.7, topK: 4, topP: 1 }, { temperature: 1.5, topK: 0, topP: 0.6 },
      { temperature: 1, topK: 50, topP: 0.9 }, { temperature: 2, topK: 1, topP: 0.1 },
    ]) {
      test(`of ${count} tokens: ${JSON.stringify(sampling)}`, async () => {
        const words = numbers(first + count, 6);
        const wanted = distribution(words.subarray(first), sampling);
        const found = await draw(sampling, words, first, count, CHANCES, false);
        found.forEach((token, k) => {
          const at = wanted.findIndex(([it]) => it === token);
          assert(at >= 0, `${token} is not among ${wanted.map(([it]) => it)}`);
          const before = wanted.slice(0, at).reduce((sum, [, it]) => sum + it, 0);
          assert(before <= CHANCES[k] + 1e-4 && CHANCES[k] <= before + wanted[at][1] + 1e-4, `chance ${CHANCES[k]} gave ${token}`);
        });
      });
    }
  }

  test('the likeliest, the first of equal ones, with NaN and infinities about', async () => {
    const greedy = { temperature: 0, topK: 0, topP: 1 };
    for (const [logits, token] of [
      [[1, 3, 2, 3], 1], [[-5, -1, -Infinity, -1], 1], [[NaN, -2, NaN, -3], 1], [[0, Infinity, 5, Infinity], 1],
      [[-Infinity, -Infinity], 0], [[NaN, NaN], undefined],
    ]) {
      assert.deepEqual(await draw(greedy, Float32Array.from(logits), 0, logits.length, [0.5], false), [token]);
    }
    assert.deepEqual(await draw({ temperature: 1, topK: 0, topP: 1 }, Float32Array.from([NaN, 1, NaN]), 0, 3, [0, 0.99], false), [1, 1]);
  });

  test('tokens are there as the ids of the next run, too; where there is none, as a token that exists', async () => {
    const gpu = Gpu.of(await env.webgpu.device);
    const logits = Float32Array.of(1, 5, 2, 0, NaN, NaN, NaN, NaN, 0, 1, 2, 3);
    const buffer = gpu.storage(logits.byteLength, 'logits');
    gpu.write(buffer, 0, new Uint8Array(logits.buffer));
    for (const Ids of [BigInt64Array, Int32Array]) {
      const sampler = new Sampler(gpu, false, Ids === BigInt64Array, { temperature: 0, topK: 0, topP: 1 }, 3);
      const tokens = await (await sampler.next(buffer, { first: 0, step: 4, count: 4 }, [0, 0, 0]))();
      assert.deepEqual(tokens, [1, undefined, 3]);
      assert.deepEqual(Array.from(new Ids(await gpu.read(sampler.ids, 3 * Ids.BYTES_PER_ELEMENT)), Number), [1, 0, 3]);
      sampler.release();
    }
    gpu.free(buffer);
  });

  test('halves', async () => {
    // 1, 2.5, -3, 2.5, 60000 and 4, of which the last but one is not looked at.
    const words = Uint16Array.from([0x3c00, 0x4100, 0xc200, 0x4100, 0x7b53, 0x4400]);
    assert.deepEqual(await draw({ temperature: 0, topK: 0, topP: 1 }, words, 0, 4, [0.5], true), [1]);
    assert.deepEqual(await draw({ temperature: 0, topK: 0, topP: 1 }, words, 1, 2, [0.5], true), [0]);
    assert.deepEqual(await draw({ temperature: 1, topK: 2, topP: 1 }, words, 0, 4, [0.1, 0.9], true), [1, 3]);
  });

  test('the same seed draws the same tokens', () =>
    withModel('causal', async (session) => {
      const run = (seed) => collect(generate(session, prompt, { maxNewTokens: 12, temperature: 3, seed }));
      const [first, again, other] = [await run(7), await run(7), await run(8)];
      assert.deepEqual(first, again);
      assert.notDeepEqual(first, other);
    }));
});

describe('text', () => {
  // Bytes, as tokenizers of bytes have them: a letter may be several tokens.
  const tokenizer = { decode: (tokens) => new TextDecoder().decode(Uint8Array.from(tokens)) };
  const pieces = (text, options) => collect(streamText(tokenizer, new TextEncoder().encode(text), options));

  test('letters are whole', async () => {
    assert.deepEqual(await pieces('aü€'), ['a', 'ü', '€']);
  });

  test('of a tokenizer of @huggingface/tokenizers, in and out', async () => {
    const { Tokenizer } = await import('@huggingface/tokenizers');
    const read = (name) => JSON.parse(readFileSync(`${folder}/tokenizer/${name}`, 'utf8'));
    const tokenizer = new Tokenizer(read('tokenizer.json'), read('tokenizer_config.json'));
    await withModel('decoder', async (session) => {
      const { ids } = tokenizer.encode('Once upon a time');
      const options = { maxNewTokens: 24, temperature: 0.9, topK: 40, seed: 4 };
      const tokens = await collect(generate(session, ids, options));
      const told = await collect(streamText(tokenizer, generate(session, ids, options)));
      assert(told.length > 3);
      assert.equal(told.join(''), tokenizer.decode(tokens, { skip_special_tokens: true }));
    });
  });

  test('it ends before a text that stops, no part of which is given out', async () => {
    assert.equal((await pieces('one\n\ntwo', { stop: ['\n\n', 'x'] })).join(''), 'one');
    assert.equal((await pieces('one\ntwo\n', { stop: ['\n\n'] })).join(''), 'one\ntwo\n');
  });
});
