// What a browser keeps of a folder, over visits of two versions of it. The cache and the network are those of this file.

import assert from 'node:assert/strict';
import { beforeEach, mock, test } from 'node:test';
import { bytesOf } from './fixtures.mjs';
import { internals } from './internals.mjs';

const { openPackage } = await internals('testing');
const has = { features: new Set(), limits: new Proxy({}, { get: (_, name) => (name.startsWith('min') ? 1 : Infinity) }), software: true };
const manifestOf = (name) => JSON.parse(new TextDecoder().decode(bytesOf(`${name}.onnx.wgpu/manifest.json`)));
const [old, next] = ['chunks', 'conv'];
/** The address of a version's file in the cache. */
const keyOf = ({ file, sha256 }) => `https://here/model/${file}?sha256=${sha256}`;
const MANIFEST = 'https://here/model/manifest.json?manifest';

Object.defineProperty(globalThis, 'location', { value: new URL('https://here/page'), configurable: true });
const store = new Map();
/** Called after a write with its key. */
let wrote;
let quota;
globalThis.caches = {
  open: async () => ({
    match: async (key) => (store.has(key) ? new Response(store.get(key).slice()) : undefined),
    keys: async () => [...store.keys()].map((url) => ({ url })),
    delete: async (key) => store.delete(key),
    async put(key, response) {
      const bytes = new Uint8Array(await response.arrayBuffer());
      const others = [...store].filter(([it]) => it !== key).reduce((sum, [, it]) => sum + it.length, 0);
      if (others + bytes.length > quota) throw new DOMException('full', 'QuotaExceededError');
      store.set(key, bytes);
      wrote(key);
    },
  }),
};

/** The answer of the network for a file of the folder. */
let answer;
globalThis.fetch = async (uri) => answer(new URL(uri).pathname.split('/').at(-1));
const online = (name) => async (file) => {
  try {
    return new Response(bytesOf(`${name}.onnx.wgpu/${file}`));
  } catch {
    return new Response('', { status: 404 });
  }
};
const offline = async () => {
  throw new TypeError('offline');
};
/** The same, except for some files. */
const but = (network, wanted, instead) => (file) => (wanted.test(file) ? instead(file) : network(file));

beforeEach(() => {
  store.clear();
  quota = Infinity;
  wrote = () => undefined;
});

const opened = () => openPackage('https://here/model/', has);
const read = async (found) => {
  await found.weights(() => undefined, () => undefined);
  return found.total;
};
/** Visits the page: the version that opens there. */
async function visit(network) {
  answer = network;
  const total = await read(await opened());
  return [old, next].find((name) => manifestOf(name).weights.bytes === total);
}
/** Visits it while the server gives no manifest within 2 seconds. `late` is what it gives then. */
async function slowVisit(network) {
  mock.timers.enable({ apis: ['setTimeout'] });
  let give;
  const asked = new Promise((resolve) => {
    answer = but(network, /manifest/, (file) => new Promise((done) => {
      give = () => done(network(file));
      resolve();
    }));
  });
  try {
    const opening = opened();
    await asked;
    mock.timers.tick(2000);
    const total = await read(await opening);
    return [[old, next].find((name) => manifestOf(name).weights.bytes === total), give];
  } finally {
    mock.timers.reset();
  }
}

test('a late manifest replaces the kept one only with all of its files', async () => {
  assert.equal(await visit(online(old)), old);
  assert.equal(await visit(offline), old);
  let tried;
  const broken = new Promise((resolve) => (tried = resolve));
  const [found, give] = await slowVisit(but(online(next), /weights-001/, async () => (tried(), new Response('', { status: 404 }))));
  assert.equal(found, old);
  give();
  await broken;
  assert.equal(await visit(offline), old);
  // This time its files arrive.
  const kept = new Promise((resolve) => (wrote = (key) => key === MANIFEST && resolve()));
  const [again, giveAgain] = await slowVisit(online(next));
  assert.equal(again, old);
  giveAgain();
  await kept;
  assert.equal(await visit(offline), next);
});

test('a visit that is cut off, or aborted, leaves the kept version as it was', async () => {
  await visit(online(old));
  await assert.rejects(visit(but(online(next), /weights-001/, async () => new Response('', { status: 404 }))), /404/);
  assert.equal(await visit(offline), old);
  answer = online(next);
  const aborted = new AbortController();
  const found = await openPackage('https://here/model/', has, { signal: aborted.signal });
  await assert.rejects(found.weights(() => aborted.signal.throwIfAborted(aborted.abort()), () => undefined), { name: 'AbortError' });
  assert.equal(await visit(offline), old);
});

test('of an old version nothing stays, of other folders everything', async () => {
  for (const key of ['https://here/model/other/weights-000.bin?sha256=0', 'https://here/weights-000.bin?sha256=0']) store.set(key, new Uint8Array(1));
  await visit(online(old));
  await visit(online(next));
  assert.equal(await visit(offline), next);
  const inFolder = [...store.keys()].filter((it) => new URL('.', it).href === 'https://here/model/');
  const { programs, weights } = manifestOf(next);
  assert.deepEqual(inFolder.sort(), [MANIFEST, keyOf(programs[0]), ...weights.chunks.map(keyOf)].sort());
  assert.equal(store.size, inFolder.length + 2);
});

test('a session that is slower than one of a newer version leaves that one kept', async () => {
  answer = online(old);
  const slow = await opened();
  assert.equal(await visit(online(next)), next);
  answer = online(old);
  await read(slow);
  assert.equal(await visit(offline), next);
});

test('two sessions of a folder at once', async () => {
  await visit(online(old));
  answer = online(next);
  await Promise.all([opened(), opened()].map(async (it) => read(await it)));
  assert.equal(await visit(offline), next);
});

test('where there is room for one version, the new one is kept with the visit after its first', async () => {
  await visit(online(old));
  const sizeOf = (name) => [manifestOf(name).programs[0], ...manifestOf(name).weights.chunks].reduce((sum, it) => sum + it.bytes, 0);
  quota = Math.max(sizeOf(old), sizeOf(next)) + 2000;
  assert(quota < sizeOf(old) + sizeOf(next));
  assert.equal(await visit(online(next)), next);
  await assert.rejects(visit(offline), /manifest\.json cannot be fetched/);
  assert.equal(await visit(online(next)), next);
  assert.equal(await visit(offline), next);
});

test('a file arrives whole, with and without its length in the answer', async () => {
  const body = bytesOf('large.onnx.wgpu/weights-001.bin');
  const bytes = new Uint8Array(3 * body.length + 5).map((_, k) => body[k % body.length]);
  const digest = Buffer.from(await crypto.subtle.digest('SHA-256', bytes)).toString('hex');
  const manifest = manifestOf(old);
  manifest.weights.chunks.push({ file: 'weights-004.bin', bytes: bytes.length, sha256: digest });
  manifest.weights.bytes += bytes.length;
  for (const headers of [{}, { 'content-length': bytes.length }]) {
    answer = but(but(online(old), /manifest/, async () => new Response(JSON.stringify(manifest))), /weights-004/, async () => new Response(bytes, { headers }));
    let taken;
    const found = await opened();
    await found.weights((offset, it) => (offset + it.length === found.total ? (taken = it) : undefined), () => undefined);
    assert.deepEqual(taken, bytes);
    store.clear();
  }
});
