// The library's own modules for tests that need what it does not export, and Dawn as navigator.gpu.

import { existsSync, mkdirSync } from 'node:fs';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { build } from 'esbuild';

const web = fileURLToPath(new URL('..', import.meta.url));

/** The exports of one module of src/. */
export async function internals(name) {
  mkdirSync(`${web}build`, { recursive: true });
  const outfile = `${web}build/${name}.${process.pid}.mjs`;
  const entryPoints = [`${web}src/${name}.ts`];
  const define = { VERSION: '"test"' };
  await build({ entryPoints, outfile, define, bundle: true, format: 'esm', external: ['onnxruntime-common'], logLevel: 'warning' });
  return import(pathToFileURL(outfile));
}

/** Makes navigator.gpu Dawn's. SwiftShader, Debian's chromium-common, is the adapter unless VK_DRIVER_FILES names another;
 * `options` of the package `webgpu` may choose another backend. */
export async function useDawn(options = []) {
  const swiftshader = ['/usr/lib/chromium/vk_swiftshader_icd.json', '/usr/lib64/chromium-browser/vk_swiftshader_icd.json'];
  process.env.VK_DRIVER_FILES ??= swiftshader.find(existsSync) ?? '';
  process.env.XDG_RUNTIME_DIR ??= '/tmp'; // the Vulkan loader asks for one
  const { create, globals } = await import('webgpu');
  Object.assign(globalThis, globals);
  const gpu = create(options);
  Object.defineProperty(globalThis, 'navigator', { value: { gpu }, configurable: true });
  return gpu;
}

/** Ends this process at once, by SIGKILL, after its last words went to stdout: an orderly exit takes down what the adapter's threads
 * still use, and now and then one of them writes into memory that is free already. */
export const leave = () => process.kill(process.pid, 'SIGKILL');
