// Chromium with WebGPU on SwiftShader, and pages in it.

import { fileURLToPath } from 'node:url';
import { chromium } from 'playwright-core';

export const web = fileURLToPath(new URL('../..', import.meta.url));
const FLAGS = ['--no-sandbox', '--enable-unsafe-webgpu', '--use-webgpu-adapter=swiftshader'];

/** The browser that $CHROMIUM names. */
export function launch() {
  return chromium.launch({ executablePath: process.env.CHROMIUM || '/usr/bin/chromium', args: FLAGS });
}

/** A page of its own profile, when `ready` is true there; `page.problems` lists errors, `page.strangers` other servers asked. */
export async function open(browser, address, ready) {
  const context = await browser.newContext();
  const page = await context.newPage();
  page.problems = [];
  page.strangers = [];
  page.on('pageerror', (error) => page.problems.push(String(error)));
  page.on('console', (message) => message.type() === 'error' && page.problems.push(message.text()));
  const { origin } = new URL(address);
  page.on('request', (request) => /^https?:/.test(request.url()) && !request.url().startsWith(origin) && page.strangers.push(request.url()));
  await page.goto(address);
  await page.waitForFunction(ready).catch((error) => {
    throw new Error(page.problems.join('\n') || error.message);
  });
  return page;
}
