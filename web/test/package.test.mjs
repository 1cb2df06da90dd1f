// What is shipped: small, typed, without code that a strict content security policy forbids.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { existsSync, readFileSync, readdirSync } from 'node:fs';
import { test } from 'node:test';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { gzipSync } from 'node:zlib';

const web = fileURLToPath(new URL('..', import.meta.url));
const read = (file) => readFileSync(`${web}${file}`, 'utf8');
const meta = JSON.parse(read('package.json'));

// As docs/web.md says them; onnxruntime-common is in the library and in the proxy.
const SIZES = {
  'ort.wgpu.min.js': 25_600, 'ort.wgpu.bundle.min.mjs': 25_600, 'ort.wgpu.mjs': 25_600, 'ort.wgpu.cjs': 25_600,
  'ort.wgpu.proxy.bundle.min.mjs': 9_700, 'ort.wgpu.host.mjs': 4_000, 'ort.wgpu.flow.mjs': 4_500,
  'ort.wgpu.grow.mjs': 1_536, 'ort.wgpu.settings.mjs': 1_536, 'ort.wgpu.matrices.mjs': 1_536,
};
test('the library, its proxy and what is fetched later are as small as the documentation says', () => {
  for (const [file, most] of Object.entries(SIZES)) {
    const bytes = gzipSync(read(`dist/${file}`), { level: 9 }).length;
    assert(bytes <= most, `${file}: ${bytes} bytes with gzip`);
  }
});

test('no code is made of text', () => {
  for (const file of readdirSync(`${web}dist`).filter((it) => /\.[cm]?js$/.test(it))) {
    assert.doesNotMatch(read(`dist/${file}`), /\beval\(|new Function\(/);
  }
});

const filesOf = (it) => (typeof it === 'string' ? [it] : Object.values(it).flatMap(filesOf));
test('everything that package.json names is there', () => {
  const named = [meta.main, meta.module, meta.types, meta.jsdelivr, meta.unpkg, ...Object.values(meta.exports).flatMap(filesOf)];
  for (const file of [...named, ...Object.values(meta.bin)]) assert(file.includes('*') || existsSync(web + file), file);
});

test('the lock file has what package.json asks for', () => {
  const { packages } = JSON.parse(read('package-lock.json'));
  for (const name of ['version', 'bin', 'engines', 'peerDependencies', 'devDependencies']) assert.deepEqual(packages[''][name], meta[name], name);
  for (const [name, { version, integrity, link }] of Object.entries(packages)) assert(!name || (version && integrity && !link), `${name} has no digest`);
});

test('the version is that of the Python package', () => {
  assert.equal(meta.version, read('../src/onnxruntime_ep_wgpu/version.py').match(/^VERSION = "(.*)"/m)[1]);
});

test('the package and its proxy may be imported together, in any order', () => {
  const files = ['ort.wgpu.mjs', 'ort.wgpu.proxy.mjs'].map((it) => pathToFileURL(`${web}dist/${it}`));
  for (const order of [files, files.toReversed()]) {
    execFileSync(process.execPath, ['--input-type=module', '-e', order.map((it) => `await import('${it}');`).join('\n')]);
  }
});
