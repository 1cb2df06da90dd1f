// Drives pages in one Chromium: node bench/measure.mjs JOB.json. The job: {folder, models: [{name, inputs, runs}], libraries,
// rounds, gpu, chromium}. Pages are isolated, because others have a clock of a tenth of a millisecond. Prints one line of JSON for each page: {library, model, round, ...}. Libraries alternate, and each page
// has a browser of its own, so that nothing is cached.

import { readFileSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { extname } from 'node:path';
import { fileURLToPath } from 'node:url';
import { chromium } from 'playwright-core';
import { cpuTimes } from './cpu.mjs';

const web = fileURLToPath(new URL('..', import.meta.url));
const { folder, models, libraries, rounds, gpu, chromium: executablePath } = JSON.parse(readFileSync(process.argv[2], 'utf8'));
const TYPES = { '.js': 'text/javascript', '.mjs': 'text/javascript', '.json': 'application/json', '.html': 'text/html', '.wasm': 'application/wasm' };
const MOUNTS = { '/dist/': `${web}dist/`, '/ort/': `${web}node_modules/onnxruntime-web/dist/`, '/models/': `${folder}/` };
const ISOLATED = { 'cross-origin-opener-policy': 'same-origin', 'cross-origin-embedder-policy': 'require-corp' };
const SOFTWARE = ['--enable-unsafe-webgpu', '--use-webgpu-adapter=swiftshader'];
const HARDWARE = ['--enable-unsafe-webgpu', '--enable-features=Vulkan', '--use-angle=vulkan', '--ignore-gpu-blocklist'];

let job;
const server = createServer(async (request, response) => {
  const path = decodeURIComponent(new URL(request.url, 'http://x').pathname);
  const mount = Object.keys(MOUNTS).find((it) => path.startsWith(it));
  const pages = {
    '/': '<!doctype html><meta charset="utf-8"><link rel="icon" href="data:,"><script type="module" src="/page.js"></script>',
    '/job.json': JSON.stringify(job),
  };
  try {
    const body = pages[path] ?? (await readFile(mount ? MOUNTS[mount] + path.slice(mount.length) : `${web}bench${path}`));
    response.writeHead(200, { 'content-type': TYPES[extname(path)] ?? (path === '/' ? 'text/html' : 'application/octet-stream'), ...ISOLATED }).end(body);
  } catch {
    response.writeHead(404).end();
  }
});
await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
const address = `http://127.0.0.1:${server.address().port}/`;
let version;
for (let round = 0; round < rounds; round++) {
  for (const { name, inputs, runs } of models) {
    for (const library of round % 2 ? libraries.toReversed() : libraries) {
      job = { library, model: name, runs, inputs };
      const browser = await chromium.launch({ executablePath, args: ['--no-sandbox', ...(gpu ? HARDWARE : SOFTWARE)] });
      version = browser.version();
      const page = await browser.newPage();
      const before = cpuTimes();
      // Milliseconds of CPU since the navigation: of the browser, and of the page's thread.
      await page.exposeFunction('cpuTimes', () => {
        const { all, pages } = cpuTimes();
        return { all: all - before.all, pages: pages - before.pages };
      });
      try {
        await page.goto(address);
        await page.waitForFunction(() => window.result, null, { timeout: 600_000 });
        console.log(JSON.stringify({ library, model: name, round, ...(await page.evaluate(() => window.result)) }));
      } catch (error) {
        console.log(JSON.stringify({ library, model: name, round, error: error.name === 'TimeoutError' ? 'longer than ten minutes' : error.message.slice(0, 300) }));
      }
      await browser.close();
    }
  }
}
console.log(JSON.stringify({ browser: version }));
server.close();
