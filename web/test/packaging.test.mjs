// The package as npm would publish it, seen by those who check packages: publint, Are The Types Wrong, npm itself.

import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { after, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { publint } from 'publint';
import { formatMessage } from 'publint/utils';

const web = fileURLToPath(new URL('..', import.meta.url));
const meta = JSON.parse(readFileSync(`${web}package.json`, 'utf8'));
const scratch = mkdtempSync(`${tmpdir()}/wgpu-packaging-`);
after(() => rmSync(scratch, { recursive: true, force: true }));
const npm = (...args) => execFileSync('npm', [...args, '--json', '--ignore-scripts'], { cwd: web, encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] });
let tarball;
before(() => {
  const [{ filename }] = JSON.parse(npm('pack', '--pack-destination', scratch));
  tarball = `${scratch}/${filename}`;
});

test('publint has nothing to say', async () => {
  const { messages } = await publint({ pkgDir: web, level: 'suggestion', strict: true });
  assert.deepEqual(messages.map((it) => formatMessage(it, meta)), []);
});

test('every way of finding modules finds the types and the code that belong together', () => {
  // What it finds is no error for us alone: it is read from its answer.
  const { stdout } = spawnSync(process.execPath, [`${web}node_modules/@arethetypeswrong/cli/dist/index.js`, tarball, '--format', 'json'], { encoding: 'utf8', maxBuffer: 2 ** 28 });
  const { analysis } = JSON.parse(stdout);
  assert.deepEqual(Object.keys(analysis.entrypoints).filter((it) => !it.includes('*')).sort(), Object.keys(meta.exports).filter((it) => !it.includes('*')).sort());
  // `require` gives the package itself; its other parts are ES modules, which documentation says.
  const found = analysis.problems.filter((it) => !(it.kind === 'CJSResolvesToESM' && it.entrypoint !== '.'));
  assert.deepEqual(found, []);
});

test('npm would publish it as it is', () => {
  const { stdout, stderr, status } = spawnSync('npm', ['publish', '--dry-run', '--ignore-scripts', '--offline', '--json', tarball], { cwd: scratch, encoding: 'utf8' });
  assert.equal(status, 0, stderr);
  const found = JSON.parse(stdout);
  const { name, version, files } = found[meta.name] ?? found;
  assert.deepEqual([name, version], [meta.name, meta.version]);
  const paths = files.map((it) => it.path);
  for (const it of ['package.json', 'README.md', 'LICENSE', meta.main.slice(2), ...Object.values(meta.bin)]) assert(paths.includes(it), it);
  assert.deepEqual(paths.filter((it) => !/^(dist|tools)\/|^(package\.json|README\.md|LICENSE)$/.test(it)), []);
  assert.deepEqual(stderr.split('\n').filter((it) => /^npm warn/i.test(it) && !/requires you to be logged in/.test(it)), []);
});
