// Chromium with WebGPU on SwiftShader, and pages in it.

import { fileURLToPath } from 'node:url';
import { chromium } from 'playwright-core';
import { PATIENCE } from '../settings.mjs';

export const web = fileURLToPath(new URL('../..', import.meta.url));
const WEBGPU = ['--enable-unsafe-webgpu', '--use-webgpu-adapter=swiftshader'];

/** The browser that $CHROMIUM names, with WebGPU or as it comes, and with more arguments. */
export function launch(webgpu = true, more = []) {
  return chromium.launch({ executablePath: process.env.CHROMIUM || '/usr/bin/chromium', timeout: PATIENCE, args: ['--no-sandbox', ...(webgpu ? WEBGPU : []), ...more] });
}

/** A page of its own profile, which `prepare` gets first, when `ready` is true there; `page.problems` lists errors, `page.warnings` warnings, `page.said` what it logs, `page.strangers` other servers asked. */
export async function open(browser, address, ready, prepare = () => {}) {
  const context = await browser.newContext();
  context.setDefaultTimeout(PATIENCE);
  await prepare(context);
  const page = await context.newPage();
  page.problems = [];
  page.strangers = [];
  page.on('pageerror', (error) => page.problems.push(String(error)));
  page.warnings = [];
  page.said = [];
  page.on('console', (message) => message.type() === 'log' && page.said.push(message.text()));
  page.on('console', (message) => message.type() === 'error' && page.problems.push(message.text()));
  page.on('console', (message) => message.type() === 'warning' && page.warnings.push(message.text()));
  const { origin } = new URL(address);
  page.on('request', (request) => /^https?:/.test(request.url()) && !request.url().startsWith(origin) && page.strangers.push(request.url()));
  await page.goto(address);
  await page.waitForFunction(ready).catch((error) => {
    throw new Error(page.problems.join('\n') || error.message);
  });
  return page;
}
