// The ONNX model that an export's bytes were made of. In: bytes of a single file that `wgpu-ep export --with-onnx` wrote. Out: the
// model's bytes. Where bytes came from is unknown, so it is looked for beside every file of the export's name that this page
// has fetched, or that is in its caches; it is the model if its SHA-256 is the one that the export wrote.

import { sha256 } from '../files.js';

const HEAD = 48; // the manifest follows

interface Original {
  /** The name of the export, that of the model, and where it is from there. */
  readonly of: string;
  readonly file: string;
  readonly bytes: number;
  readonly sha256: string;
}

export async function original(pack: Uint8Array): Promise<Uint8Array | undefined> {
  const found = described(pack);
  if (!found) return undefined;
  for (const address of await addresses(`/${found.of}`)) {
    const response = await fetch(new URL(found.file, address)).catch(() => undefined);
    if (!response?.ok) continue;
    const bytes = new Uint8Array(await response.arrayBuffer());
    if (bytes.length === found.bytes && (await sha256(bytes)) === found.sha256) return bytes;
  }
  return undefined;
}

function described(pack: Uint8Array): Original | undefined {
  try {
    const length = new DataView(pack.buffer, pack.byteOffset).getUint32(12, true);
    return JSON.parse(new TextDecoder().decode(pack.subarray(HEAD, HEAD + length))).onnx as Original | undefined;
  } catch {
    return undefined; // a Program, or damaged
  }
}

/** The addresses of files that end so: those fetched here last come first. */
async function addresses(end: string): Promise<Set<string>> {
  const known = (globalThis.performance?.getEntriesByType?.('resource') ?? []).map((it) => it.name).reverse();
  try {
    for (const name of await caches.keys()) known.push(...(await (await caches.open(name)).keys()).map((it) => it.url));
  } catch {
    // There are none here, or they are not allowed.
  }
  return new Set(known.filter((it) => /^https?:/.test(it) && new URL(it).pathname.endsWith(end)));
}
