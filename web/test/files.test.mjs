// Where models come from in Node, and how much of them is in memory on the way.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { cpSync, createReadStream, mkdirSync, mkdtempSync, readFileSync, rmSync, statSync, truncateSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { relative } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { pathToFileURL } from 'node:url';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { assertSame, bytesOf, folder, samples, serve } from './fixtures.mjs';
import { useDawn } from './internals.mjs';

await useDawn();
const ort = await import('../dist/ort.wgpu.mjs');
const { InferenceSession, memory } = ort;
const options = (more = {}) => ({ executionProviders: [{ name: 'webgpu', ...more }] });
const scratch = mkdtempSync(`${tmpdir()}/wgpu-files-`);
after(() => rmSync(scratch, { recursive: true }));

const here = (name) => `${folder}/${name}`;

describe('files in Node', () => {
  for (const [what, address] of [
    ['the path of the model', here('chunks.onnx')],
    ['the path of the folder', here('chunks.onnx.wgpu')],
    ['the path of the folder, with a slash', here('chunks.onnx.wgpu/')],
    ['the path of the manifest', here('chunks.onnx.wgpu/manifest.json')],
    ['the path of one file', here('chunks.wgpu')],
    ['a relative path', relative(process.cwd(), here('chunks.onnx.wgpu'))],
    ['the URL of the folder', String(pathToFileURL(here('chunks.onnx.wgpu')))],
    ['the URL of one file', String(pathToFileURL(here('chunks.wgpu')))],
  ]) {
    test(what, async () => {
      const [{ feeds, wanted }] = samples(ort, 'chunks');
      const session = await InferenceSession.create(address, options());
      await assertSame((await session.run(feeds)).y, wanted.y);
      await session.release();
      assert.deepEqual(memory(), { buffers: 0, bytes: 0 });
    });
  }

  test('nothing of fetch is loaded, which takes Node a while', async () => {
    const names = ['fetch', 'Response', 'Headers', 'Request'];
    const before = names.map((it) => [it, Object.getOwnPropertyDescriptor(globalThis, it)]);
    for (const it of names) Object.defineProperty(globalThis, it, { configurable: true, get: () => assert.fail(`${it} is loaded`) });
    try {
      const session = await InferenceSession.create(here('chunks.onnx'), options());
      await session.release();
    } finally {
      for (const [it, descriptor] of before) Object.defineProperty(globalThis, it, descriptor);
    }
  });

  test('what is not there, not an export, or damaged', async () => {
    const fails = (address, message) => assert.rejects(InferenceSession.create(address, options()), (error) => error.name === 'ProgramError' && message.test(error.message));
    await fails(`${scratch}/none.onnx`, /none\.onnx cannot be read: ENOENT/);
    await fails(`${scratch}/none.wgpu`, /none\.wgpu cannot be read: ENOENT/);
    await fails(`${scratch}/`, /manifest\.json cannot be read: ENOENT/);
    await fails(scratch, /cannot be read: it is a folder; nor can .*manifest\.json: ENOENT/);
    writeFileSync(`${scratch}/text.onnx`, 'no model');
    await fails(`${scratch}/text.onnx`, /text\.onnx is not an exported model/);
    writeFileSync(`${scratch}/half.wgpu`, bytesOf('chunks.wgpu').slice(0, 5000));
    await fails(`${scratch}/half.wgpu`, /half\.wgpu is truncated/);
  });
});

describe('what is no file in Node', { skip: process.platform === 'win32' && 'there are no named pipes' }, () => {
  const fails = (address, message) => assert.rejects(InferenceSession.create(address, options()), (error) => error.name === 'ProgramError' && message.test(error.message));
  const pipe = (place) => execFileSync('mkfifo', [place]);
  test('a pipe in the place of an export', async () => {
    pipe(`${scratch}/pipe.wgpu`);
    await fails(`${scratch}/pipe.wgpu`, /pipe\.wgpu cannot be read: it is no regular file; nor can/);
    await fails('/dev/null', /null cannot be read: it is no regular file/);
  });
  test('a pipe among the files of an export', async () => {
    for (const name of ['manifest.json', 'programs-software.json.deflated', 'weights-001.bin.deflated']) {
      cpSync(here('chunks.onnx.wgpu'), `${scratch}/piped`, { recursive: true });
      rmSync(`${scratch}/piped/${name}`);
      pipe(`${scratch}/piped/${name}`);
      await fails(`${scratch}/piped/`, new RegExp(`${name} cannot be read: it is no regular file`));
      rmSync(`${scratch}/piped`, { recursive: true });
    }
  });
  test('a file that does not fit into memory', async () => {
    writeFileSync(`${scratch}/huge.wgpu`, '');
    truncateSync(`${scratch}/huge.wgpu`, 2 ** 42);
    await fails(`${scratch}/huge.wgpu`, /huge\.wgpu cannot be read: .* \(it has 4398046511104 bytes\)/);
  });
});

describe('exports that are called otherwise', () => {
  // Each by all addresses that people have for it, in Node and of servers, with a query that they answer by.
  const places = { folder: ['b1', 'm.wgpu', 'v1.2', 'a/chunks.onnx.wgpu'], file: ['single', 'one.wgpu', 'two.bin', 'three.onnx'] };
  const served = `${scratch}/served`;
  let server;
  before(async () => {
    mkdirSync(`${served}/a`, { recursive: true });
    for (const name of places.folder) cpSync(`${folder}/chunks.onnx.wgpu`, `${served}/${name}`, { recursive: true });
    for (const name of places.file) cpSync(`${folder}/chunks.wgpu`, `${served}/${name}`);
    server = await serve({ mounts: { '/at/': `${served}/` } });
  });
  after(() => server.close());

  const right = async (address) => {
    const [{ feeds, wanted }] = samples(ort, 'chunks');
    const session = await InferenceSession.create(address, options());
    await assertSame((await session.run(feeds)).y, wanted.y);
    await session.release();
  };
  const names = [
    ...places.folder.flatMap((it) => [it, `${it}/`, `${it}/manifest.json`]), 'a/chunks.onnx', ...places.file,
  ];
  for (const name of names) {
    test(name, async () => {
      await right(`${served}/${name}`);
      await right(pathToFileURL(`${served}/${name}`).href);
      for (const query of ['', '?v=4', '?next=/a.onnx#part']) {
        server.log.length = server.queries.length = 0;
        await right(`${server.url}at/${name}${query}`);
        assert.deepEqual([...new Set(server.queries)], [query.split('#')[0]]);
        assert(server.log.length <= 8, server.log.join());
      }
    });
  }
  test('a server that answers folders with a list', async () => {
    server.intercept = (path) => (places.folder.some((it) => path.replace(/\/$/, '') === `/at/${it}`) ? { body: '<!doctype html><title>list</title>' } : undefined);
    for (const name of places.folder) await right(`${server.url}at/${name}`);
  });
  test('a path with marks that addresses have for queries', async () => {
    cpSync(`${folder}/chunks.onnx.wgpu`, `${scratch}/what? #1.wgpu`, { recursive: true });
    await right(`${scratch}/what? #1.wgpu`);
    await right(`${scratch}/what? #1.wgpu/`);
    await right(pathToFileURL(`${scratch}/what? #1.wgpu`).href);
  });
});

describe('weights on their way to the device', () => {
  // A server whose files are never in memory whole, and a count of bytes in arrays that somebody still has.
  setFlagsFromString('--expose-gc');
  const collect = runInNewContext('gc');
  const held = () => {
    for (let time = 0; time < 3; time++) collect(); // what one frees, the next one counts
    return process.memoryUsage().arrayBuffers;
  };
  let server;
  let url;
  before(async () => {
    server = createServer((request, response) => {
      const path = `${folder}${new URL(request.url, 'http://x').pathname}`;
      if (!statSync(path, { throwIfNoEntry: false })?.isFile()) return void response.writeHead(404).end();
      createReadStream(path, { highWaterMark: 1 << 14 }).pipe(response);
    });
    await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
    url = `http://127.0.0.1:${server.address().port}/`;
  });
  after(() => server.close());

  test('what was asked for ahead of a program that is damaged is let go of', async () => {
    const told = [];
    let tell;
    const toldAll = new Promise((resolve) => (tell = (it) => told.push(it) === 8 && resolve()));
    const plain = globalThis.fetch;
    globalThis.fetch = async (uri) => {
      if (uri.endsWith('.json.deflated')) return new Response('nothing');
      const response = await plain(uri);
      if (!uri.includes('weights-')) return response;
      const body = new ReadableStream({ cancel: () => tell('cancelled') });
      tell('asked');
      void response.body.cancel();
      return new Response(body);
    };
    try {
      await assert.rejects(InferenceSession.create(`${url}large.onnx`, options()), /programs-software\.json\.deflated is truncated/);
      await toldAll;
    } finally {
      globalThis.fetch = plain;
    }
    assert.equal(told.filter((it) => it === 'asked').length, 4);
    assert.equal(told.filter((it) => it === 'cancelled').length, 4);
  });

  for (const [what, address] of [['a server', () => `${url}large.onnx`], ['files', () => `${folder}/large.onnx.wgpu`]]) {
    test(`from ${what}, few chunks are in memory`, async () => {
      const { weights } = JSON.parse(readFileSync(`${folder}/large.onnx.wgpu/manifest.json`, 'utf8'));
      const chunk = Math.max(...weights.chunks.map(({ bytes, inflated }) => inflated ?? bytes));
      assert(weights.chunks[0].inflated, 'one is inflated');
      assert(weights.chunks.length >= 6 && chunk >= 1 << 20);
      const session = await InferenceSession.create(address(), options()); // pools of the server and of Node are filled
      await session.release();
      const before = held();
      let most = 0;
      const measure = () => (most = Math.max(most, held() - before));
      // In the middle of a chunk, when its hash is calculated, and behind it.
      const { subtle } = crypto;
      const plain = subtle.digest;
      subtle.digest = (...given) => (measure(), plain.apply(subtle, given));
      try {
        const again = await InferenceSession.create(address(), options({ onProgress: measure }));
        await again.release();
      } finally {
        delete subtle.digest;
      }
      // Two chunks, what one of them is inflated to, and what four requests have on their way.
      assert(most >= chunk && most < 5 * chunk, `${most} bytes of chunks of ${chunk}`);
    });
  }
});
