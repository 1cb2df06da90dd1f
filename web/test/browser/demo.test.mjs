// How the page of web/demo looks and is used, without models: colours in light and dark, tabs, widths, what is missing: models,
// a network, WebGPU.

import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { build, preview } from 'vite';
import { launch, open, web } from './chromium.mjs';

const OUT = { outDir: `${web}build/demo-look`, emptyOutDir: true };
const TABS = ['search', 'detect', 'speech', 'chat', 'bench'];
const NOTES = ['search-note', 'detect-note', 'speech-note', 'bench-note'];
/** Every tab has said that its model is not there. */
const settled = (notes) => document.querySelector('.log .error') && notes.every((id) => /there/.test(document.getElementById(id).textContent));
let server;
let browser;
let page;
/** A page whose models.json has a chat, the only tab that needs one to be shown. */
const withChat = (of, address, then) => open(of, server.resolvedUrls.local[0] + address, then, (context) => context.addInitScript(() => {
  const original = fetch;
  const mine = (it) => String(it).endsWith('models/models.json');
  globalThis.fetch = (it, ...more) => (mine(it) ? Promise.resolve(Response.json({ chat: { model: 'a model', bytes: '2000000' } })) : original(it, ...more));
})); // prettier-ignore
before(async () => {
  const configFile = `${web}demo/vite.config.js`;
  await build({ configFile, publicDir: false, logLevel: 'error', build: OUT });
  server = await preview({ configFile, build: OUT, preview: { port: 0 }, logLevel: 'silent' });
  browser = await launch();
  page = await withChat(browser, '', () => document.getElementById('adapter').textContent !== 'Looking for a GPU…');
  // What models would fill in, with the classes of search.js, chat.js and bench.js.
  await page.waitForFunction(() => document.getElementById('search-note').textContent.includes('cannot be loaded'));
  for (const name of TABS) await page.click(`#tab-${name}`);
  await page.waitForFunction(settled, NOTES);
  await page.evaluate(() => {
    const fill = (id, html) => (document.getElementById(id).innerHTML += html);
    fill('examples', '<button type="button">an example</button>');
    fill('results', '<li>first<div class="meter"><div></div></div><span>0.61</span></li><li>second<div class="meter"><div></div></div><span>0.40</span></li>');
    fill('log', '<p class="you">a question</p><p class="model">an answer</p>');
    fill('charts', '<div class="chart"><h3>Steady run</h3><dl><div><dt>this runtime<b>1 ms</b></dt><dd><div></div></dd></div></dl></div>');
    fill('model', '<option>MiniLM, sentences of up to 128 tokens as vectors (90.3 MB)</option>');
    fill('bench-note', `https://example.org/${'a-long-address/'.repeat(6)}`);
    document.getElementById('speed').textContent = '12.3 tokens/s';
    document.getElementById('heard').textContent = 'what was said';
    document.getElementById('seen').hidden = false;
    for (const it of document.querySelectorAll(':disabled')) it.disabled = false; // which may be faint
  });
});
after(async () => {
  await browser?.close();
  await server?.close();
});

/** Texts and edges of fields whose contrast with what is behind them is below 4.5 and 3. */
const faint = () => {
  const numbers = (colour) => {
    const [r, g, b, a = 1] = colour.match(/[\d.]+/g).map(Number);
    return [r, g, b, a];
  };
  const over = ([r, g, b, a], [x, y, z]) => [r * a + x * (1 - a), g * a + y * (1 - a), b * a + z * (1 - a)];
  const behind = (element) => {
    if (!element) return [255, 255, 255];
    const own = numbers(getComputedStyle(element).backgroundColor);
    return own[3] === 1 ? own : over(own, behind(element.parentElement));
  };
  const luminance = (colour) => {
    const [r, g, b] = colour.map((it) => (it / 255 <= 0.04045 ? it / 255 / 12.92 : ((it / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const contrast = (front, back) => {
    const [low, high] = [luminance(over(numbers(front), back)), luminance(back)].sort((a, b) => a - b);
    return (high + 0.05) / (low + 0.05);
  };
  const found = [];
  let seen = 0;
  for (const element of document.querySelectorAll('body *')) {
    if (!element.checkVisibility()) continue;
    const told = (what, ratio, least) => {
      seen += 1;
      if (ratio < least) found.push(`${what} of ${element.tagName}.${element.className}#${element.id}: ${ratio.toFixed(2)}`);
    };
    const style = getComputedStyle(element);
    const text = [...element.childNodes].some((it) => it.nodeType === Node.TEXT_NODE && it.data.trim());
    if (text) told('text', contrast(style.color, behind(element)), 4.5);
    if (!element.matches('input:not([type=range]), textarea, select')) continue;
    if (element.placeholder) told('placeholder', contrast(getComputedStyle(element, '::placeholder').color, behind(element)), 4.5);
    told('edge', contrast(style.borderTopColor, behind(element.parentElement)), 3);
  }
  return { found, seen };
};

describe('colours', () => {
  for (const colorScheme of ['light', 'dark']) {
    for (const width of [320, 390, 1280]) {
      test(`${colorScheme}, ${width} pixels: texts and fields stand out, and nothing is wider than the page`, async () => {
        await page.emulateMedia({ colorScheme });
        await page.setViewportSize({ width, height: 844 });
        const ground = await page.evaluate(() => getComputedStyle(document.body).backgroundColor.match(/\d+/g).map(Number)[0]);
        assert.equal(ground < 128, colorScheme === 'dark');
        for (const name of TABS) {
          await page.click(`#tab-${name}`);
          const { found, seen } = await page.evaluate(faint);
          assert(seen > 12, `${seen} texts were looked at`);
          assert.deepEqual(found, [], name);
          assert(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), name);
        }
      });
    }
  }

  test('the button changes them, and the choice is remembered', async () => {
    const dark = () => page.evaluate(() => getComputedStyle(document.documentElement).colorScheme === 'dark');
    await page.emulateMedia({ colorScheme: 'dark' });
    assert(await dark());
    await page.click('#theme');
    assert(!(await dark()));
    assert.equal(await page.evaluate(() => localStorage.getItem('theme')), 'light');
    await page.click('#theme');
    assert(await dark());
  });
});

describe('tabs', () => {
  const state = () => page.evaluate(() => [...document.querySelectorAll('[role=tab]')].map((it) => {
    const panel = document.getElementById(it.getAttribute('aria-controls'));
    return { selected: it.ariaSelected === 'true', reached: it.tabIndex === 0, shown: panel.checkVisibility(), focused: document.activeElement === it,
      named: panel.getAttribute('aria-labelledby') === it.id && panel.role === 'tabpanel' };
  })); // prettier-ignore

  test('arrows, Home and End choose among them, and one of them is reached with Tab', async () => {
    await page.focus('#tab-bench');
    await page.click('#tab-bench');
    for (const [key, wanted] of [['ArrowRight', 0], ['ArrowRight', 1], ['ArrowLeft', 0], ['ArrowLeft', 4], ['Home', 0], ['End', 4]]) {
      await page.keyboard.press(key);
      const on = (k) => ({ selected: k === wanted, reached: k === wanted, shown: k === wanted, focused: k === wanted, named: true });
      assert.deepEqual(await state(), TABS.map((_, k) => on(k)), key);
    }
    await page.keyboard.press('Tab');
    assert.equal(await page.evaluate(() => document.activeElement.id), 'bench');
    await page.keyboard.press('Shift+Tab');
    assert.equal(await page.evaluate(() => getComputedStyle(document.activeElement).outlineStyle), 'solid');
  });

  test('an address names one', async () => {
    await page.evaluate(() => (location.hash = '#chat'));
    await page.waitForFunction(() => document.getElementById('chat').checkVisibility());
    assert.deepEqual((await state()).map((it) => it.selected), TABS.map((it) => it === 'chat'));
  });
});

test('models that are not there are said, with the command that writes them', async () => {
  const texts = await page.evaluate((ids) => ids.map((id) => document.getElementById(id).textContent), ['log', ...NOTES]);
  for (const text of texts) assert.match(text, /is not there.*make web-demo/);
});

const told = () => document.getElementById('search-note').textContent;
const disabled = (it) => it.$$eval('main button, main input, main textarea, main select', (all) => all.filter((field) => field.disabled).map((field) => field.id));

test('after a first visit the page opens without a network, at any of its addresses, with all tabs', async () => {
  const [url] = server.resolvedUrls.local;
  const visitor = await withChat(browser, '', told);
  const cached = await visitor.evaluate(async () => {
    const [name] = (await caches.keys()).filter((it) => it.startsWith('page-'));
    return (await (await caches.open(name)).keys()).map((it) => new URL(it.url).pathname);
  });
  for (const part of [/^\/$/, /\.css$/, /\.svg$/, /search.*\.js$/, /chat.*\.js$/, /bench-worker.*\.js$/, /ort\.wgpu\.worker|worker-.*js$/]) assert(cached.some((it) => part.test(it)), `${part}: ${cached}`);
  await visitor.context().setOffline(true);
  for (const address of ['', '?from=elsewhere', '#chat', 'index.html']) {
    await visitor.goto('about:blank');
    await visitor.goto(url + address);
    await visitor.waitForFunction(() => document.getElementById('adapter').textContent !== 'Looking for a GPU…');
    for (const name of TABS) await visitor.click(`#tab-${name}`);
    await visitor.waitForFunction(() => document.querySelector('.log .error') && document.getElementById('bench-note').textContent && document.getElementById('search-note').textContent);
    assert.match(await visitor.textContent('.log .error'), /chat\/\S+ cannot be fetched: .*open this once with a network/);
    const style = await visitor.evaluate(() => getComputedStyle(document.querySelector('[role=tablist]')).display);
    assert.equal(style, 'inline-flex', address);
  }
  await visitor.context().close();
});

test('a new build takes the place of what was kept of an old one', async () => {
  const visitor = await open(browser, server.resolvedUrls.local[0], told);
  await visitor.evaluate(async () => {
    for (const name of ['page', 'page-0123', 'visited', 'vectors']) await caches.open(name);
    const [registration] = await navigator.serviceWorker.getRegistrations();
    await registration.unregister();
  });
  await visitor.reload();
  await visitor.waitForFunction(told);
  const names = await visitor.evaluate(() => caches.keys());
  assert.deepEqual(names.filter((it) => /^page/.test(it)).length, 1, names.join());
  assert(!names.includes('page-0123') && names.includes('visited') && names.includes('vectors'), names.join());
  await visitor.context().close();
});

test('what has no model yet cannot be sent or run, and the chat is not shown', async () => {
  const visitor = await open(browser, server.resolvedUrls.local[0], told);
  assert(!(await visitor.isVisible('#tab-chat')));
  const models = ['query', 'camera', 'picture', 'face-example', 'record', 'sound', 'sound-example', 'message', 'send', 'model', 'run', 'share'];
  assert.deepEqual(await disabled(visitor), models);
  for (const name of TABS.filter((it) => it !== 'chat')) await visitor.click(`#tab-${name}`);
  await visitor.waitForFunction((ids) => ids.every((id) => /there/.test(document.getElementById(id).textContent)), NOTES);
  assert.deepEqual(await disabled(visitor), models);
  await visitor.context().close();
});

test('without WebGPU the page says why, and that WebAssembly runs the models', async () => {
  const other = await launch(false);
  try {
    const visitor = await open(other, server.resolvedUrls.local[0], () => !document.getElementById('notice').hidden);
    assert.match(await visitor.textContent('#notice'), /cannot use WebGPU here: .*\. They run in WebAssembly/);
    assert.equal(await visitor.textContent('#adapter'), 'WebAssembly');
  } finally {
    await other.close();
  }
});
