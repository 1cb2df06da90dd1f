// The page of web/demo as it is built: it searches, talks and measures, with a keyboard, and goes on without a network.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { after, before, test } from 'node:test';
import { preview } from 'vite';
import { launch, open, web } from '../browser/chromium.mjs';

let server;
let browser;
let page;
before(async () => {
  execFileSync(process.execPath, [`${web}node_modules/vite/bin/vite.js`, 'build', 'demo', '--logLevel', 'warn'], { cwd: web });
  server = await preview({ configFile: `${web}demo/vite.config.js`, preview: { port: 0 }, logLevel: 'silent' });
  browser = await launch();
  page = await open(browser, server.resolvedUrls.local[0], () => document.querySelector('[role=tab][aria-selected=true]'));
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

test('tabs are chosen with the keyboard, and a model answers', async () => {
  await page.focus('#tab-search');
  await page.keyboard.press('ArrowRight');
  assert.equal(await page.evaluate(() => document.activeElement.id), 'tab-chat');
  assert(await page.isVisible('#chat'));
  await page.waitForFunction(() => document.getElementById('speed').textContent === '' && document.getElementById('chat-about').textContent.includes('random'));
  assert(await page.isEnabled('#send'));
  await page.fill('#message', 'the device and its buffers');
  await page.keyboard.press('Enter');
  await page.waitForFunction(() => /tokens\/s/.test(document.getElementById('speed').textContent) && document.getElementById('send').textContent === 'Send');
  assert.equal(await page.$$eval('.log .error', (found) => found.length), 0);
});

test('libraries are measured side by side and agree', async () => {
  await page.click('#tab-bench');
  await page.waitForFunction(() => document.querySelectorAll('#model option').length);
  await page.click('#run');
  await page.waitForFunction(() => !document.getElementById('run').disabled && document.getElementById('bench-note').textContent.includes('differ'));
  const difference = Number((await page.textContent('#bench-note')).match(/at most ([-\de.+]+?)\.$/)[1]);
  assert(difference < 1e-3, `results differ by ${difference}`);
});

test('every field has a name, and nothing comes from another server', async () => {
  const nameless = await page.$$eval('input, textarea, select, button', (all) => all.filter((it) => !it.labels?.length && !it.textContent.trim() && !it.ariaLabel).map((it) => it.outerHTML));
  assert.deepEqual(nameless, []);
  assert.deepEqual(page.strangers, []);
  for (const width of [320, 768, 1280]) {
    await page.setViewportSize({ width, height: 800 });
    assert(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), `the page is wider than ${width} pixels`);
  }
});
