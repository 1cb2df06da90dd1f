// Finds the ONNX model of an export that is given as bytes. In: the bytes of a single file from `wgpu-ep export --with-onnx`.
// Out: the model's bytes. The origin of the bytes is unknown. So the model is looked for beside every file with the export's
// name that this page has fetched, or that is in its caches. It is the model if its SHA-256 is the one in the export.

import { sha256 } from '../files.js';

const HEAD = 48; // the manifest follows

interface Original {
  /** The names of the export and of the model, and the model's path relative to the export. */
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

/** Returns the addresses of files with this end. Those fetched last on this page come first. */
async function addresses(end: string): Promise<Set<string>> {
  const known = (globalThis.performance?.getEntriesByType?.('resource') ?? []).map((it) => it.name).reverse();
  try {
    for (const name of await caches.keys()) known.push(...(await (await caches.open(name)).keys()).map((it) => it.url));
  } catch {
    // There are no caches here, or they are not allowed.
  }
  return new Set(known.filter((it) => /^https?:/.test(it) && new URL(it).pathname.endsWith(end)));
}
