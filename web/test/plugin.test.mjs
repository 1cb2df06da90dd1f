// What the plugin for Vite is given: names of files, addresses and queries that nobody expects. An export is made of what it says,
// or there is an error of the plugin; nothing is run, and nothing outside of the cache is served.

import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, readFileSync, readdirSync, realpathSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, request } from 'node:http';
import { tmpdir } from 'node:os';
import { after, before, describe, test } from 'node:test';
import wgpu from '../tools/vite.mjs';

const root = realpathSync(mkdtempSync(`${tmpdir()}/wgpu-plugin-`));
const { version } = JSON.parse(readFileSync(new URL('../package.json', import.meta.url), 'utf8'));
/** As `wgpu-ep export MODEL ... --output PLACE`: the export says which arguments it was made with. */
const EXPORTER = `#!/bin/sh
case "$1" in -c) echo ${version}; exit;; esac
shift 2; model="$2"; for it in "$@"; do place="$it"; done
mkdir "$place" && printf '%s\\n' "$@" >"$place/manifest.json" && echo '{"sources": []}'
`;
const before_ = process.env.WGPU_EP_PYTHON;
const plugins = Object.fromEntries(['serve', 'build'].map((command) => [command, wgpu()]));
let server;

before(async () => {
  writeFileSync(`${root}/package.json`, '{}');
  writeFileSync(`${root}/python`, EXPORTER, { mode: 0o755 });
  process.env.WGPU_EP_PYTHON = `${root}/python`;
  for (const [command, plugin] of Object.entries(plugins)) plugin.configResolved({ root, command, base: '/', build: { assetsDir: 'assets' } });
  let handler;
  plugins.serve.configureServer({ middlewares: { use: (it) => (handler = it) } });
  server = createServer((asked, response) => handler(asked, response, () => response.writeHead(418).end()));
  await new Promise((ready) => server.listen(0, 'localhost', ready));
});
after(() => {
  server.close();
  if (before_ === undefined) delete process.env.WGPU_EP_PYTHON;
  else process.env.WGPU_EP_PYTHON = before_;
  rmSync(root, { recursive: true, force: true });
});

/** The status and the text of an address, which goes to the server as it is. */
const got = (path) => new Promise((resolve, reject) => {
  const asked = request({ host: 'localhost', port: server.address().port, path }, async (response) => {
    let text = '';
    for await (const piece of response.setEncoding('utf8')) text += piece;
    resolve([response.statusCode, text]);
  });
  asked.on('error', reject).end();
});

class Told extends Error {}

/** What a page gets of an import: the text of the address, and the files of the page. */
async function loaded(command, id) {
  const files = [];
  const context = {
    addWatchFile: () => undefined, warn: () => undefined,
    error: ({ message }) => { throw new Told(message); },
    emitFile: ({ fileName }) => `file${files.push(fileName)}`,
  };
  const { code } = await plugins[command].load.call(context, id);
  return { address: command === 'serve' ? JSON.parse(code.slice('export default '.length, -1)) : code, files };
}

describe('names of models', () => {
  const NAMES = [
    "it's.onnx", 'a"b.onnx', '$(touch pwned).onnx', '`touch pwned`.onnx', 'a\nb.onnx', '-x.onnx', '#a.onnx', 'a%41.onnx', '%zz.onnx', '${x}.onnx', 'a\\b.onnx',
    '..onnx', '<script>.onnx', '[x] *.onnx', 'ü.onnx', `${'a'.repeat(240)}.onnx`,
  ];
  for (const name of NAMES) {
    test(JSON.stringify(name).slice(0, 40), async () => {
      writeFileSync(`${root}/${name}`, 'model');
      const { address } = await loaded('serve', `${root}/${name}?wgpu`);
      const [status, text] = await got(new URL(address, 'http://localhost').pathname);
      assert.equal(status, 200);
      assert(text.startsWith(`export\n${root}/${name}\n--json\n--output\n`), text);
      const { address: code, files } = await loaded('build', `${root}/${name}?wgpu`);
      assert.equal(code, 'export default import.meta.ROLLUP_FILE_URL_file1;');
      assert.match(files[0], /^assets\/[^/]*-[\da-f]{8}\/[^/]*\.wgpu\/manifest\.json$/s);
      assert(!readdirSync(root).includes('pwned'));
    });
  }

  const NONE = ['missing.onnx', `${'a'.repeat(5000)}.onnx`, '.', 'a\0b.onnx'];
  for (const name of NONE) {
    test(`${JSON.stringify(name).slice(0, 40)}, which is none`, async () => {
      await assert.rejects(loaded('serve', `${root}/${name}?wgpu`), (error) => error instanceof Told && error.message.endsWith(': there is no such file'));
    });
  }
});

describe('queries', () => {
  before(() => writeFileSync(`${root}/model.onnx`, 'model'));

  test('are arguments, as they are', async () => {
    const { address } = await loaded('serve', `${root}/model.onnx?override=$(touch pwned)&override=${'x'.repeat(5000)}&a%26b=c%26d&wgpu`);
    const [, text] = await got(address);
    assert(text.includes(`--override\n$(touch pwned)\n--override\n${'x'.repeat(5000)}\n--a%26b\nc&d\n`), text);
    assert(!readdirSync(root).includes('pwned'));
  });

  for (const [query, reason] of [['override=%E0', /'override=%E0' has a % without/], ['override=%', /write % as %25/], ['override=%00', /does not start: .*null bytes/], ['output=/etc', /'output' cannot stand in an import/]]) {
    test(`?${query} is refused`, async () => {
      await assert.rejects(loaded('serve', `${root}/model.onnx?${query}&wgpu`), (error) => error instanceof Told && reason.test(error.message));
    });
  }
});

test('addresses lead to files of the cache alone', async () => {
  mkdirSync(`${root}/node_modules/.cache/onnxruntime-ep-wgpu-web/${'a'.repeat(64)}`, { recursive: true });
  for (const path of ['../../../../package.json', '%2e%2e/%2e%2e/%2e%2e/%2e%2e/package.json', '..%5c..%5cpackage.json', '%E0', '%00', 'x'.repeat(5000), '.', '%2e']) {
    assert.deepEqual((await got(`/@wgpu/${'a'.repeat(64)}/${path}`))[0], 404, path.slice(0, 40));
  }
});
