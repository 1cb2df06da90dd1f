// Replaces what the browser's Cache has of a folder. Pages need it for a version that they did not have before. In: a
// manifest. Out: nothing. Invariant: a kept manifest has its files in the cache. It imports no other code.

interface Entry {
  readonly file: string;
  readonly sha256: string;
}

/**
 * Keeps a manifest instead of the `last` one if its weights and a Program are kept. If they are not, the quota does not suffice
 * for both versions: the last one is removed, and the next visit keeps the rest. What else is kept of the folder is removed.
 */
export async function replace(name: string, key: string, json: Uint8Array, last: Uint8Array | undefined): Promise<void> {
  const text = (bytes: Uint8Array): string => new TextDecoder().decode(bytes);
  const keyOf = ({ file, sha256 }: Entry): string => new URL(`${file}?sha256=${sha256}`, key).href;
  const folderOf = (it: string): string => new URL('.', it).href;
  const { programs, weights } = JSON.parse(text(json)) as { programs: Entry[]; weights: { chunks: Entry[] } };
  const current = new Set([key, ...[...programs, ...weights.chunks].map(keyOf)]);
  await alone(name, async () => {
    const cache = await caches.open(name);
    // Another session, perhaps of another tab, kept its manifest meanwhile.
    const now = await cache.match(key);
    if (now && (await now.text()) !== (last && text(last))) return;
    const found = (await cache.keys()).map((it) => it.url).filter((it) => folderOf(it) === folderOf(key));
    const isKept = (it: Entry): boolean => found.includes(keyOf(it));
    if (weights.chunks.every(isKept) && programs.some(isKept)) await cache.put(key, new Response(json as Uint8Array<ArrayBuffer>));
    else await cache.delete(key);
    for (const it of found) if (!current.has(it)) await cache.delete(it);
  });
}

/** Writes while no other tab does. */
async function alone(name: string, write: () => Promise<void>): Promise<void> {
  const locks = globalThis.navigator?.locks;
  return locks ? locks.request(name, write) : write();
}
