// Programs for matrix units: which adapters get them, that units are tried before, under the names of the experiment and of the
// standard, and that results are right by the same kernels in plain WGSL.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { after, beforeEach, describe, test } from 'node:test';
import { assertSame, bytesOf, folder, samples } from './fixtures.mjs';
import { internals, useDawn } from './internals.mjs';

const EXPERIMENT = 'chromium-experimental-subgroup-matrix';
const UNIT = [16, 16, 16, 'f16', 'f32', 32];
// A compiler that has every feature, and runs nothing.
const silent = await useDawn(['backend=null', 'enable-dawn-features=allow_unsafe_apis']);
const compiler = await (await silent.requestAdapter()).requestDevice({ requiredFeatures: ['shader-f16', 'subgroups', EXPERIMENT] });
const gpu = await useDawn();
const device = await (await gpu.requestAdapter()).requestDevice();
const { Executable, Gpu, kernelOf, memory, openPackage, unitsOf } = await internals('testing');
const ort = await import('../dist/ort.wgpu.mjs');
let held;
beforeEach(() => (held = memory()));
after(() => [device, compiler].forEach((it) => it.destroy()));

/** A device that says of its adapter what is given; everything else is that of `of`. */
const said = (of, adapterInfo, features = []) => {
  const all = { adapterInfo: { isFallbackAdapter: false, ...adapterInfo }, features: new Set([...of.features, ...features]) };
  return new Proxy(of, {
    get: (it, name) => (name in all ? all[name] : typeof it[name] === 'function' && name !== 'constructor' ? it[name].bind(it) : it[name]),
    set: (_, name, value) => ((all[name] = value), true),
  });
};
const config = { M: 16, N: 16, K: 16, componentType: 'f16', resultComponentType: 'f32' };
const nvidia = (more) => ({ vendor: 'nvidia', subgroupMinSize: 32, subgroupMaxSize: 32, subgroupMatrixConfigs: [config], ...more });

describe('which Program is taken', () => {
  const limits = {
    maxStorageBuffersPerShaderStage: 8, maxComputeInvocationsPerWorkgroup: 1024, maxComputeWorkgroupStorageSize: 1 << 15,
    maxStorageBufferBindingSize: 1 << 27, maxBufferSize: 1 << 28, minStorageBufferOffsetAlignment: 256, maxComputeWorkgroupSizeX: 1024,
  };
  const features = new Set(['shader-f16', 'subgroups', 'discrete', EXPERIMENT]);
  const [units, none] = ['web-large-f16-subgroups-discrete-matrices', /^web-large-f16/];
  const other = [[16, 8, 16, 'f16', 'f32', 32], [16, 16, 16, 'f16', 'f16', 32], [16, 16, 16, 'f16', 'f32', 64], [16, 16, 32, 'i8', 'i32', 32]];
  for (const [what, its, matrices, wanted] of [
    ['units that are right', features, [...other, UNIT], units],
    ['units of other sizes and types', features, other, none],
    ['no units', features, [], none],
    ['a device without the feature', new Set(['shader-f16', 'subgroups', 'discrete']), undefined, none],
    ['a GPU whose memory is not its own', new Set(['shader-f16', 'subgroups', EXPERIMENT]), [UNIT], none],
  ]) {
    test(what, async () => {
      const has = { features: its, limits, software: false, matrices: matrices && (async () => matrices) };
      const { program } = await openPackage(bytesOf('half.wgpu'), has);
      assert[typeof wanted === 'string' ? 'equal' : 'match'](program.target.name, wanted);
      const texts = program.kernels.flatMap((it) => it.wgsl);
      assert.equal(texts.some((it) => it.includes('subgroupMatrixMultiplyAccumulate')), wanted === units);
    });
  }

  for (const [what, right, wanted] of [['right', [UNIT], units], ['wrong', [], none]]) {
    test(`its kernels are compiled while units are tried, which turn out ${what}`, async () => {
      let begin;
      const begun = new Promise((done) => (begin = done));
      const matrices = async (tell) => {
        tell([UNIT]);
        assert.equal((await begun).target.name, units);
        return right;
      };
      const { program } = await openPackage(bytesOf('half.wgpu'), { features, limits, software: false, matrices, ahead: begin });
      assert[typeof wanted === 'string' ? 'equal' : 'match'](program.target.name, wanted);
      if (right.length) assert.equal(program, await begun);
    });
  }

  test('a model without products of halves has none', async () => {
    for (const file of ['reduced.wgpu', 'tiny.wgpu']) {
      const { program } = await openPackage(bytesOf(file), { features, limits, software: false, matrices: () => assert.fail('tried') });
      assert.doesNotMatch(program.target.name, /matrices/);
    }
  });
});

describe('whether units are right', () => {
  /** What a product gives whose sums `change`. */
  const resultsOf = ([m, n, k], change = (it) => it) => {
    const operand = (at) => ((at * 7) % 17) - 8;
    const left = Array.from({ length: m }, (_, row) => Array.from({ length: k }, (_, i) => operand(row * k + i)));
    const right = Array.from({ length: k }, (_, i) => Array.from({ length: n }, (_, column) => operand(m * k + i * n + column) + operand(m * k + k * n + column * k + i)));
    const sums = left.flatMap((row) => right[0].map((_, column) => row.reduce((sum, it, i) => sum + it * right[i][column], 0)));
    return Float32Array.from([...sums, ...sums].map(change));
  };
  const tried = async (results, units = [UNIT], { of = compiler, ...more } = {}) => {
    const subgroupMatrixConfigs = units.map(([M, N, K, componentType, resultComponentType]) => ({ M, N, K, componentType, resultComponentType }));
    const own = said(of, nvidia({ subgroupMatrixConfigs, ...more }));
    const found = Gpu.of(own);
    const texts = [];
    own.createShaderModule = (it) => (texts.push(it.code), of.createShaderModule(it));
    // It parses what it has no units to make pipelines for; those that it makes do nothing.
    own.createComputePipelineAsync = async ({ layout, compute }) => {
      const wrong = (await compute.module.getCompilationInfo()).messages.find((it) => it.type === 'error');
      if (wrong) throw new Error(wrong.message);
      const module = of.createShaderModule({ code: '@compute @workgroup_size(1) fn main() {}' });
      return of.createComputePipelineAsync({ layout, compute: { module, entryPoint: 'main' } });
    };
    if (results) found.read = async () => results.buffer;
    const begun = [];
    const right = await unitsOf(found, (it) => begun.push([it, texts.length]));
    assert.equal(await unitsOf(found, () => assert.fail('they are known')), right);
    if (texts.length) assert.deepEqual(begun.map(([it, compiled]) => [it.length, compiled]), [[texts.length, texts.length]]);
    return [right, texts];
  };

  test('products that are exact, once', async () => {
    for (const unit of [UNIT, [8, 8, 8, 'f16', 'f32', 32], [16, 8, 16, 'f16', 'f32', 32]]) {
      const [right, texts] = await tried(resultsOf(unit), [unit]);
      assert.deepEqual(right, [unit]);
      assert.equal(texts.length, 1);
      assert.deepEqual(memory(), held);
    }
  });

  for (const [what, results] of [
    ['nothing', undefined], ['one wrong sum', resultsOf(UNIT, (it, k) => it + Number(k === 300))], ['no numbers', resultsOf(UNIT, () => NaN)],
    ['a second half that is not the first', resultsOf(UNIT, (it, k) => (k < 256 ? it : 0))],
  ]) {
    test(`${what}: they are not`, async () => {
      assert.deepEqual((await tried(results))[0], []);
      assert.deepEqual(memory(), held);
    });
  }

  test('a browser that spells them in another way has none', async () => {
    const without = await (await silent.requestAdapter()).requestDevice({ requiredFeatures: ['shader-f16'] });
    without.pushErrorScope('validation');
    assert.deepEqual((await tried(resultsOf(UNIT), [UNIT], { of: without }))[0], []);
    assert.match((await without.popErrorScope()).message, /subgroup_matrix/);
    without.destroy();
  });

  test('types that no kernel multiplies are not tried', async () => {
    const [right, texts] = await tried(resultsOf(UNIT), [[16, 16, 32, 'i8', 'i32', 32], UNIT, [16, 16, 16, 'f16', 'f16', 32], [4, 4, 4, 'f16', 'f32', 32]]);
    assert.deepEqual([right, texts.length], [[UNIT], 1]);
  });

  test('what a device does not list is tried', async () => {
    for (const subgroupMatrixConfigs of [undefined, []]) {
      const [right, texts] = await tried(resultsOf(UNIT), [], { subgroupMatrixConfigs });
      assert.deepEqual([right, texts.length], [[UNIT], 1]);
    }
    assert.deepEqual((await tried(undefined, [], { subgroupMatrixConfigs: [] }))[0], []);
  });

  test('subgroups of several sizes have none', async () => {
    for (const more of [{ subgroupMinSize: 16 }, { subgroupMinSize: undefined, subgroupMaxSize: undefined }]) {
      assert.deepEqual(await tried(resultsOf(UNIT), [UNIT], more), [[], []]);
    }
  });

  test('they are tried in the words of kernels', () => {
    const units = readFileSync(new URL('../../src/onnxruntime_ep_wgpu/program/matrices_units.wgsl', import.meta.url), 'utf8');
    const words = (text) => new Set(text.match(/(?:enable|alias|diagnostic|subgroupMatrix\w+|subgroup_matrix_\w+)[\w, ]*(?:<[\w, ]+>)?(?:\(&?\w+)?/g).filter((it) => /^subgroupMatrix/.test(it)));
    const [kernels, probe] = [units, kernelOf(UNIT).wgsl[0]].map((it) => [...words(it)].sort());
    assert(kernels.length >= 6);
    assert.deepEqual(probe, kernels);
  });
});

test('the feature is asked for, by its names', async () => {
  for (const name of [EXPERIMENT, 'subgroup-matrix']) {
    const asked = [];
    const env = ort.env.webgpu;
    const before = env.adapter;
    env.device = undefined;
    env.adapter = {
      features: new Set(['subgroups', name, 'texture-compression-bc']), limits: device.limits,
      requestDevice: async ({ requiredFeatures }) => (asked.push(...requiredFeatures), device),
    };
    assert.equal(await env.device, device);
    assert.deepEqual(asked.toSorted(), ['subgroups', name].toSorted());
    env.adapter = before;
    env.device = undefined;
  }
});

test('under the name of the standard kernels have its words', async () => {
  for (const [features, word] of [[['subgroup-matrix'], 'subgroup_matrix'], [[EXPERIMENT], 'chromium_experimental_subgroup_matrix'], [['subgroup-matrix', EXPERIMENT], 'chromium_experimental_subgroup_matrix']]) {
    const own = said(device, nvidia(), features);
    const texts = [];
    own.createShaderModule = ({ code }) => (texts.push(code), device.createShaderModule({ code: '' }));
    own.createComputePipelineAsync = async () => ({});
    const found = Gpu.of(own);
    assert(found.features.has(EXPERIMENT));
    found.read = async () => new ArrayBuffer(0);
    await unitsOf(found);
    assert.match(texts[0], new RegExp(`^enable f16;\nenable ${word};`));
    assert.equal(texts[0].includes('chromium'), word.includes('chromium'));
  }
});

test('a page runs the Program for units where they are right, and the other one elsewhere', async () => {
  const [{ feeds, wanted }] = samples(ort, 'units');
  for (const [units, name] of [[[UNIT], 'web-units'], [[], 'web-baseline'], [[[16, 8, 16, 'f16', 'f32', 32]], 'web-baseline']]) {
    const found = Gpu.of(said(device, nvidia(), [EXPERIMENT]));
    found.matrices = async () => units;
    const executable = await Executable.create(await openPackage(`${folder}/units.onnx.wgpu`, found), found);
    assert.equal(executable.program.target.name, name);
    const { data, dims } = feeds.x;
    const [{ bytes }] = await executable.run([{ dims, bytes: new Uint8Array(data.buffer, data.byteOffset, data.byteLength) }], ['cpu']);
    await assertSame(new ort.Tensor('float16', new data.constructor(bytes), wanted.y.dims), wanted.y);
    await executable.release();
  }
  assert.deepEqual(memory(), held);
});
