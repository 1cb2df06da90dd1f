// Finds the reason of a failure, with code that working pages never run. It is fetched after a failure. In: what failed. Out:
// text for its error. Of the library it imports one constant.

import { BUSY } from './found.js';

/** Returns where and why a kernel does not compile, to follow its name; undefined if the compiler gives no error. */
export async function uncompiled(module: GPUShaderModule, code: string): Promise<string | undefined> {
  const first = (await module.getCompilationInfo()).messages.find((it) => it.type === 'error');
  if (!first) return undefined;
  const line = first.lineNum ? `, line ${first.lineNum}: \`${code.split('\n')[first.lineNum - 1]?.trim()}\`` : '';
  return `${line}: ${first.message}`;
}

/** Returns why there is no WebGPU, and the remedy. */
export async function withoutGpu(): Promise<string> {
  const insecure = globalThis.isSecureContext === false ? ', which pages have only over https or on localhost' : '';
  return ` (navigator.gpu${insecure}): use a current browser, or in Node \`create\` of the package webgpu, or set env.webgpu.adapter`;
}

/** Returns why there is no adapter. */
export async function withoutAdapter(): Promise<string> {
  return ': no GPU has a driver that it supports';
}

/** Returns why a browser cannot fetch an address, which only its console shows; undefined if no server responds. */
export async function unfetched(uri: string): Promise<string | undefined> {
  const { location } = globalThis;
  const asking = { mode: 'no-cors', method: 'HEAD' } as const;
  if (!location || new URL(uri, location.href).origin === location.origin || !(await fetch(uri, asking))) return undefined;
  return `its server has to send Access-Control-Allow-Origin for ${location.origin} (CORS)`;
}

/** Returns that no export is at these places. A place on a disk is `local`. Each has a status, empty if the response is a page. */
export async function absent(tried: readonly (readonly [place: string, status: string])[], local: boolean): Promise<string> {
  const [place, status] = tried[0]!;
  const all = tried.map(([other, no], k) => `${k ? `nor can ${other}: ` : ''}${statusOf(no)}`).join('; ');
  const way = BUSY.test(status) ? 'its server fails: try again later' : 'put there what `wgpu-ep export` wrote';
  return `${place} cannot be ${local ? 'read' : 'fetched'}: ${all}; ${way}`;
}

/** Returns how to export a model, to follow its address, and where no export was found. */
export async function unexported(what: string, tried: readonly (readonly [place: string, status: string])[]): Promise<string> {
  const name = what.match(/[^/?#]+\.onnx(?=$|[?#])/)?.[0] ?? 'model.onnx';
  const where = tried.map(([place, status]) => `${place}: ${statusOf(status)}`).join('; ');
  return `: make one with \`wgpu-ep export ${name}\`${where && `, and serve the folder that it writes (${where})`}`;
}

/** Servers of single-page applications respond with a page if a file is missing. */
const statusOf = (status: string): string => status || 'the server answers with a page, so there is no such file';
