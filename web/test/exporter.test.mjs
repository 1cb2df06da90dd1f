// `npx onnxruntime-ep-wgpu-web`: which Python it finds, and that arguments, exit codes and signals go through unchanged.

import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, readFileSync, realpathSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname } from 'node:path';
import { after, describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { folder, listed } from './fixtures.mjs';

const bin = fileURLToPath(new URL('../tools/bin.mjs', import.meta.url));
const { version } = JSON.parse(readFileSync(new URL('../package.json', import.meta.url), 'utf8'));
const scratch = realpathSync(mkdtempSync(`${tmpdir()}/wgpu-exporter-`));
after(() => rmSync(scratch, { recursive: true, force: true }));

let made = 0;
/** A new folder, where programs lie as `files` says, {path: text of a shell script}. */
function place(files = {}) {
  const root = `${scratch}/${(made += 1)}`;
  mkdirSync(`${root}/app`, { recursive: true });
  for (const [path, text] of Object.entries(files)) {
    mkdirSync(dirname(`${root}/${path}`), { recursive: true });
    writeFileSync(`${root}/${path}`, `#!/bin/sh\n${text}\n`, { mode: 0o755 });
  }
  return root;
}

/** A Python that has the package, or `wgpu-ep` itself: it says its name and each argument in a line of its own. */
const having = (name, found = version) => `
  case "$1" in -c|--version) echo "wgpu-ep ${found}"; exit 0;; esac
  echo "${name}"; for it in "$@"; do printf '%s\\n' "[$it]"; done`;
const without = 'exit 1';

/** The environment in which a place has nothing but its own programs. */
const within = (root, env) => ({ PATH: `${root}/bin`, HOME: root, ...Object.fromEntries(Object.entries(env).map(([name, it]) => [name, `${root}/${it}`])) });
const run = (root, args = [], env = {}, more = {}) => spawnSync(process.execPath, [bin, ...args], { cwd: `${root}/app`, env: within(root, env), encoding: 'utf8', ...more });
const chosen = (files, env) => {
  const { stdout, stderr, status } = run(place(files), [], env);
  assert.equal(status, 0, stderr);
  return stdout.split('\n')[0];
};

describe('which one runs', () => {
  // In this order; each is what is left when those before it are not there.
  const EVERY = [
    ['here/bin/python', { WGPU_EP_PYTHON: 'here/bin/python' }], ['active/bin/python', { VIRTUAL_ENV: 'active' }], ['conda/bin/python', { CONDA_PREFIX: 'conda' }],
    ['app/.venv/bin/python', {}], ['.venv/bin/python', {}], ['bin/wgpu-ep', {}], ['bin/python3', {}], ['bin/python', {}],
    ['uv/onnxruntime-ep-wgpu/bin/python', {}], ['pipx/onnxruntime-ep-wgpu/bin/python', {}],
  ];
  const TOOLS = { 'bin/uv': 'echo "$HOME/uv"', 'bin/pipx': 'echo "$HOME/pipx"' };
  for (const [k, [path]] of EVERY.entries()) {
    test(`${path}, before what comes after it`, () => {
      const left = EVERY.slice(k);
      assert.equal(chosen({ ...TOOLS, ...Object.fromEntries(left.map(([it]) => [it, having(it)])) }, Object.assign({}, ...left.map(([, env]) => env))), path);
    });
  }

  test('Pythons without the package are passed over', () => {
    const found = { 'active/bin/python': without, 'app/.venv/bin/python': without, 'bin/python3': without, 'bin/python': having('last') };
    assert.equal(chosen(found, { VIRTUAL_ENV: 'active' }), 'last');
  });

  test('the one that WGPU_EP_PYTHON names, and no other', () => {
    const root = place({ 'here/python': without, 'bin/python3': having('another') });
    const { status, stdout, stderr } = run(root, [], { WGPU_EP_PYTHON: 'here/python' });
    assert.deepEqual([status, stdout], [127, '']);
    assert.equal(stderr, `error: the Python package onnxruntime-ep-wgpu is not in $WGPU_EP_PYTHON (${root}/here/python); install it with: ${root}/here/python -m pip install onnxruntime-ep-wgpu\n`);
  });
});

describe('where none is, the line that installs it', () => {
  const INSTALLED = [
    ['nothing at all', {}, {}, () => 'python3 -m venv .venv && .venv/bin/python -m pip install onnxruntime-ep-wgpu'],
    ['a Python alone', { 'bin/python3': without }, {}, () => 'python3 -m venv .venv && .venv/bin/python -m pip install onnxruntime-ep-wgpu'],
    ['pipx', { 'bin/pipx': 'exit 0' }, {}, () => 'pipx install onnxruntime-ep-wgpu'],
    ['uv', { 'bin/uv': 'exit 0', 'bin/pipx': 'exit 0' }, {}, () => 'uv tool install onnxruntime-ep-wgpu'],
    ['an active environment', { 'my env/bin/python': without }, { VIRTUAL_ENV: 'my env' }, (root) => `"${root}/my env/bin/python" -m pip install onnxruntime-ep-wgpu`],
    ['one beside the project, and uv', { '.venv/bin/python': without, 'bin/uv': 'exit 0' }, {}, (root) => `uv pip install --python ${root}/.venv/bin/python onnxruntime-ep-wgpu`],
  ];
  for (const [what, files, env, line] of INSTALLED) {
    test(what, () => {
      const root = place(files);
      const { status, stdout, stderr } = run(root, ['export', 'model.onnx'], env);
      assert.deepEqual([status, stdout], [127, '']);
      assert(stderr.startsWith('error: the Python package onnxruntime-ep-wgpu is not in ') && stderr.endsWith(`; install it with: ${line(root)}\n`), stderr);
    });
  }
});

describe('what goes through', () => {
  const ARGUMENTS = ['export', 'my model.onnx', '', '--override', 'n=3', '--', '"quoted"', "it's", '$HOME', 'a\nb', 'ü', '*'];

  test('arguments, as they are', () => {
    for (const [path, first] of [['bin/wgpu-ep', []], ['bin/python3', ['-m', 'onnxruntime_ep_wgpu']]]) {
      const { stdout } = run(place({ [path]: having('it') }), ARGUMENTS);
      assert.equal(stdout, ['it', ...[...first, ...ARGUMENTS].map((it) => `[${it}]`), ''].join('\n'));
    }
  });

  test('exit codes, input and both outputs', () => {
    for (const code of [0, 1, 2, 42, 130]) {
      const root = place({ 'bin/wgpu-ep': `[ "$1" = --version ] && { echo "wgpu-ep ${version}"; exit; }; read line; echo "$line"; echo wrong >&2; exit ${code}` });
      const { status, stdout, stderr } = run(root, ['export'], {}, { input: 'given\n' });
      assert.deepEqual([status, stdout, stderr], [code, 'given\n', 'wrong\n']);
    }
  });

  test('a signal, which ends the command first', async () => {
    const root = place({ 'bin/wgpu-ep': `[ "$1" = --version ] && { echo "wgpu-ep ${version}"; exit; }; trap 'echo ended; trap - TERM; kill -TERM $$' TERM; echo ready; while :; do :; done` });
    const child = spawn(process.execPath, [bin, 'export'], { cwd: `${root}/app`, env: within(root, {}), stdio: ['ignore', 'pipe', 'inherit'] });
    let text = '';
    for await (const piece of child.stdout) {
      text += piece;
      if (text === 'ready\n') child.kill('SIGTERM');
    }
    if (child.signalCode === null) await once(child, 'exit');
    assert.deepEqual([text, child.signalCode], ['ready\nended\n', 'SIGTERM']);
  });

  test('another version is said', () => {
    const { status, stderr } = run(place({ 'bin/wgpu-ep': having('it', '9.9.9') }));
    assert.equal(status, 0);
    assert.match(stderr, /^note: onnxruntime-ep-wgpu is 9\.9\.9 in wgpu-ep on the PATH, this package \d+\.\d+\.\d+: /);
  });
});

test('a real Python exports what it exports without npx, and its errors are told', () => {
  const real = (...args) => spawnSync(process.execPath, [bin, ...args], { cwd: scratch, encoding: 'utf8' });
  const done = real('export', `${folder}/tiny.onnx`, '--output', `${scratch}/tiny.onnx.wgpu`);
  assert.equal(done.status, 0, done.stderr);
  for (const file of listed('tiny.onnx.wgpu')) assert.deepEqual(readFileSync(`${scratch}/tiny.onnx.wgpu/${file}`), readFileSync(`${folder}/tiny.onnx.wgpu/${file}`), file);
  const again = real('export', `${folder}/tiny.onnx`, '--output', `${scratch}/tiny.onnx.wgpu`);
  assert.deepEqual([again.status, again.stdout], [2, '']);
  assert.match(again.stderr, /tiny\.onnx\.wgpu exists already/);
});
