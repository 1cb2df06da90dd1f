// Models of one node, given as bytes, run without a program and without a GPU: libraries make such models for themselves.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { assertSame, folder, tensor } from './fixtures.mjs';
import { useDawn } from './internals.mjs';

await useDawn();
const ort = await import('../dist/ort.wgpu.mjs');
const { InferenceSession, Tensor, memory } = ort;

const cases = JSON.parse(readFileSync(`${folder}/host.json`, 'utf8'));
const bytes = ({ model }) => new Uint8Array(Buffer.from(model, 'hex'));
const tensors = (described) => Object.fromEntries(Object.entries(described).map(([name, it]) => [name, tensor(ort, it)]));

for (const operator of new Set(cases.map((it) => it.operator))) {
  test(`${operator} gives what ONNX says`, async () => {
    for (const [k, it] of cases.entries()) {
      if (it.operator !== operator) continue;
      const session = await InferenceSession.create(bytes(it));
      const [feeds, wanted] = [tensors(it.inputs), tensors(it.outputs)];
      assert.deepEqual([...session.inputNames].sort(), Object.keys(feeds).sort());
      assert.deepEqual(session.outputNames, Object.keys(wanted));
      const results = await session.run(feeds);
      for (const name of session.outputNames) {
        await assertSame(results[name], wanted[name]).catch((error) => assert.fail(`case ${k}, ${name}: ${error.message}`));
      }
      await session.release();
    }
    assert.deepEqual(memory(), { buffers: 0, bytes: 0 });
  });
}

test('what is wrong is said by name', async () => {
  const find = (operator) => cases.find((it) => it.operator === operator);
  const session = await InferenceSession.create(bytes(find('TopK')));
  const x = new Tensor('float32', new Float32Array(3), find('TopK').inputs.x.dims.map((_, k) => (k ? 1 : 3)));
  await assert.rejects(session.run({ x, k: new Tensor('int64', [99n], [1]) }), /TopK: k is 99, the axis has \d elements/);
  await assert.rejects(session.run({ x: new Tensor('int32', [1], [1]), k: x }), /'x' is int32, the model needs float32/);
  // The same bytes with another name of the operator, as long as the old one.
  const other = (operator, name) => new Uint8Array(Buffer.from(Buffer.from(bytes(find(operator))).toString('latin1').replace(operator, name), 'latin1'));
  await assert.rejects(InferenceSession.create(other('TopK', 'Relu')), /the operator Relu is only implemented for the GPU/);
  await assert.rejects(InferenceSession.create(other('Resize', 'Rename')), /the operator Rename/);
  await assert.rejects(InferenceSession.create(bytes(find('TopK')).slice(0, -9)), /not an exported model/);
});
