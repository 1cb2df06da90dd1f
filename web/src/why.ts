// Finds the reason of a failure, with code that working pages never run. It is fetched after a failure. In: what failed. Out:
// text for its error. It imports nothing of the library.

/** Returns where and why a kernel does not compile, to follow its name; undefined if the compiler gives no error. */
export async function uncompiled(module: GPUShaderModule, code: string): Promise<string | undefined> {
  const first = (await module.getCompilationInfo()).messages.find((it) => it.type === 'error');
  if (!first) return undefined;
  const line = first.lineNum ? `, line ${first.lineNum}: \`${code.split('\n')[first.lineNum - 1]?.trim()}\`` : '';
  return `${line}: ${first.message}`;
}

/** Returns why there is no WebGPU, to follow its name in brackets, and the remedy. */
export async function withoutGpu(): Promise<string> {
  const insecure = globalThis.isSecureContext === false ? ', which pages have only over https or on localhost' : '';
  return `${insecure}): use a current browser, or in Node \`create\` of the package webgpu, or set env.webgpu.adapter`;
}

/** Returns why a browser cannot fetch an address, which only its console shows; undefined if no server responds. */
export async function unfetched(uri: string): Promise<string | undefined> {
  const { location } = globalThis;
  const asking = { mode: 'no-cors', method: 'HEAD' } as const;
  if (!location || new URL(uri, location.href).origin === location.origin || !(await fetch(uri, asking))) return undefined;
  return `its server has to send Access-Control-Allow-Origin for ${location.origin} (CORS)`;
}
