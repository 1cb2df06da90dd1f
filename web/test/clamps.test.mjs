// Browsers clamp each index that they cannot prove to be within its array, which costs an instruction, and the loads that would
// have been one. Dawn prints what it makes of a kernel, with such clamps and without: in loops there are none of indices into
// workgroup memory and private arrays. Those into buffers, whose size is not known, stay.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { closeSync, mkdtempSync, openSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { after, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { folder } from './fixtures.mjs';
import { EVERYTHING } from './settings.mjs';

const scratch = mkdtempSync(`${tmpdir()}/wgpu-clamps-`);
after(() => rmSync(scratch, { recursive: true }));

/** What Dawn prints of each kernel of a file. */
function printed(file, toggles) {
  const output = openSync(`${scratch}/out`, 'w');
  const script = fileURLToPath(new URL('clamps.mjs', import.meta.url));
  const { signal } = spawnSync(process.execPath, [script, file, toggles], { stdio: ['ignore', output, output] });
  closeSync(output);
  const text = readFileSync(`${scratch}/out`, 'utf8');
  assert.equal(signal, 'SIGKILL', text.slice(-2000)); // it came to its end
  assert.doesNotMatch(text, /^kernel \d+ does not compile.*/m);
  return text.split(/^kernel \d+$/m).slice(1).map((it) => it.slice(it.indexOf('Dumped SPIRV')));
}

/** Minima that index arrays of one kind, in loops of their function or of those that call it; and all loops. */
function inLoops(spirv, kinds) {
  const functions = new Map();
  let entry;
  let own;
  let ends = [];
  for (const line of spirv.split('\n')) {
    const [, out, operation, rest] = line.match(/^\s*(?:(%\S+) = )?(Op\w+)\s*(.*)$/) ?? [];
    const [first, second] = rest?.split(' ') ?? [];
    if (operation === 'OpEntryPoint') entry = second;
    else if (operation === 'OpFunction') functions.set(out, (own = { minima: new Map(), indexed: [], calls: [], loops: 0 }));
    else if (operation === 'OpLoopMerge') own.loops += ends.push(first) && 1;
    else if (operation === 'OpLabel' && ends.includes(out)) ends = ends.slice(0, ends.indexOf(out));
    else if (operation === 'OpExtInst' && / [US]Min | [US]Clamp /.test(rest)) own.minima.set(out, ends.length);
    else if (operation === 'OpFunctionCall') own.calls.push([second, ends.length]);
    else if (operation === 'OpAccessChain' && kinds.test(first)) own.indexed.push(...rest.split(' ').slice(2));
  }
  const counted = (name, depth) => {
    const { minima, indexed, calls, loops } = functions.get(name);
    let clamps = [...new Set(indexed)].filter((it) => minima.has(it) && minima.get(it) + depth > 0).length;
    let all = loops;
    for (const [callee, at] of calls) {
      const [more, inside] = counted(callee, depth + at);
      clamps += more;
      all += inside;
    }
    return [clamps, all];
  };
  return counted(entry, 0);
}

/** Clamps that Dawn adds, of kernels by name. */
function clamps(file, kinds = /_ptr_(Workgroup|Function|Private)_/) {
  const kernels = JSON.parse(readFileSync(file, 'utf8'));
  const [checked, unchecked] = ['dump_shaders', 'dump_shaders,disable_robustness'].map((it) => printed(file, it));
  return kernels.map(({ name }, k) => {
    const [[most, loops], [least]] = [inLoops(checked[k], kinds), inLoops(unchecked[k], kinds)];
    return { name, loops, clamps: most - least };
  });
}

test('no index into workgroup memory or a private array is clamped in a loop', () => {
  // A software adapter takes seconds to compile each of them.
  const kernels = JSON.parse(readFileSync(`${folder}/kernels.json`, 'utf8'));
  const chosen = kernels.filter(({ name }) => EVERYTHING || /^product:|^attention:/.test(name));
  writeFileSync(`${scratch}/chosen.json`, JSON.stringify(chosen));
  const found = clamps(`${scratch}/chosen.json`);
  assert(found.length >= 2 && found.filter((it) => it.loops).length > found.length / 2, 'there are loops');
  assert.deepEqual(found.filter((it) => it.clamps).map((it) => `${it.name}: ${it.clamps}`), []);
});

test('what is clamped is found', () => {
  const found = clamps(`${folder}/clamped.json`);
  assert.deepEqual(found.map((it) => it.clamps), [0, 1, 2, 0]);
  assert.deepEqual(clamps(`${folder}/clamped.json`, /_ptr_StorageBuffer_/).map((it) => it.clamps), [0, 0, 0, 1]);
});
