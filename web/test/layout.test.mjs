// Layouts are those that Python writes down for every host (tests/program/golden), and integers are Python's.

import assert from 'node:assert/strict';
import { readFileSync, readdirSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { test } from 'node:test';
import { internals } from './internals.mjs';

const { Layouts, dtype, evaluate, nbytes, parseExact, readProgram, slotsOf } = await internals('testing');
const golden = fileURLToPath(new URL('../../tests/program/golden/', import.meta.url));
const files = readdirSync(golden).filter((it) => it.endsWith('.json'));
assert(files.length > 5);

/** As the golden files have it; a browser makes no assertions about data, so their limits are left out. */
const plain = (program, layout) => {
  const { slots, slotOf } = slotsOf(program, layout);
  return { ...layout, slots, elements: Object.fromEntries(layout.elements), slot_of: Object.fromEntries(slotOf) };
};

for (const file of files) {
  const text = readFileSync(golden + file, 'utf8');
  const { cases } = parseExact(text);
  const header = text.slice('{"program":'.length, text.indexOf(',\n"cases":['));
  // No layout depends on weights, so they are left out there.
  const weights = [];
  for (const [, type, shape, storage, weight] of parseExact(text).program.values) {
    if (storage === 'WEIGHT') weights[weight] = ['', shape, nbytes(dtype(type), shape.reduce((a, b) => a * b, 1))];
  }
  for (let k = 0; k < weights.length; k++) weights[k] ??= ['', [], 0];
  const program = readProgram(header.replace('"weights":[]', `"weights":${JSON.stringify(weights)}`), file);
  test(`${file}, ${cases.length} cases`, () => {
    const layouts = new Layouts(program);
    // The second time the sizes before are others.
    for (const { symbols, layout, error, message } of [...cases, ...[...cases].reverse()]) {
      if (error) {
        assert.throws(() => layouts.layout(symbols), { name: error, message });
        continue;
      }
      const { allowed: _, ...wanted } = layout;
      assert.deepEqual(plain(program, layouts.layout(symbols)), wanted, `symbols ${symbols.join()}`);
    }
  });
}

test('division rounds as in Python, and no result loses a digit', () => {
  const of = (...tokens) => evaluate(tokens, new Map([['a', -7], ['big', 2n ** 63n - 1n]]));
  assert.deepEqual([of('$a', 2, '//'), of('$a', 2, '%'), of('$a', 2, 'tdiv'), of('$a', 0, '//')], [-4, 1, -3, 0]);
  assert.equal(of(2 ** 52, 3, '*', 1, '+'), 2n ** 52n * 3n + 1n);
  assert.equal(of('$big', 5, 'min'), 5);
  assert.equal(of('$big', '$big', -1, '*', '+'), 0);
  assert.equal(of(9007199254740991, 2, '//'), 4503599627370495);
});
