// Files of an export: from the network, from the browser's cache, or in Node from the disk. In: an address. Out: bytes with the
// hash of the manifest, or a ProgramError. Invariants: a file of known size is in memory once, however often its transfer is
// interrupted. A kept manifest has its files in the cache.

import { ProgramError, messageOf } from './errors.js';
import { BUSY, type Found, type Part, type Tell } from './found.js';
import { reason } from './reason.js';

const CACHE = 'onnxruntime-ep-wgpu';
/** Bytes of memory for a file before any arrive, if the server does not give its length. */
const ROOM = 2 ** 20;

export interface FileEntry {
  readonly file: string;
  readonly bytes: number;
  readonly sha256: string;
}

// ---- where files are

/** How files are requested. */
export interface Way {
  readonly signal?: AbortSignal | undefined;
}

/**
 * Requests a file, or its bytes after the first `from`. The browser's own cache has the part of `cache`: without it the server is
 * asked whether its file is the same. Raises ProgramError if there is no response.
 */
export async function find(uri: string, { signal }: Way = {}, from = 0, cache: RequestCache = 'no-cache'): Promise<Found> {
  const local = localPath(uri);
  if (local !== undefined) return (await import('./disk.js')).onDisk(local);
  try {
    return ofResponse(await fetch(uri, { signal: signal ?? null, cache, headers: from ? { range: `bytes=${from}-` } : {} }));
  } catch (error) {
    signal?.throwIfAborted();
    const why = (await reason((it) => it.unfetched(uri))) ?? `no server answers (${messageOf(error)})`;
    throw new ProgramError(`${uri} cannot be fetched: ${why}`, { cause: error });
  }
}

/** Places where no export is, each with the status of its response; an empty status is that of a page, which is no file. */
export type Tried = [place: string, status: string][];

/** Makes the error for places where no export is. */
export async function notFound(tried: Tried): Promise<ProgramError> {
  const why = await reason((it) => it.absent(tried, localPath(tried[0]![0]) !== undefined));
  return new ProgramError(why ?? `there is no export: ${tried.join()}`);
}

/** Servers of single-page applications respond with a page if a file is missing. */
const PAGE = /^\s*</;
export const isPage = (bytes: Uint8Array): boolean => PAGE.test(text(bytes.subarray(0, 99)));

function ofResponse(response: Response, cached = false): Found {
  return {
    ok: response.ok,
    status: `${response.status} ${response.statusText}`,
    cached,
    bytes: async (part, begin) => {
      // The response does not continue from the end of the last one.
      if (part && response.status !== 206) part.end = 0;
      if (begin && response.body) {
        const head = response.clone().body!.getReader();
        const { value } = await head.read();
        const other = value && !begin.startsWith(text(value.subarray(0, begin.length)));
        void head.cancel();
        if (other) {
          void response.body.cancel();
          return value;
        }
      }
      if (!part || !response.body) return new Uint8Array(await response.arrayBuffer());
      return filled(response.body, part, part.end + Number(response.headers.get('content-length')));
    },
    cancel: () => void response.body?.cancel().catch(() => undefined),
  };
}

/**
 * Reads a stream, which should not end before `wanted` bytes, into an array of the expected size. A longer array means that
 * there was more.
 */
export async function filled(stream: ReadableStream<Uint8Array>, part: Part, wanted = 0): Promise<Uint8Array> {
  const { size, tell } = part;
  let whole = (part.whole ??= new Uint8Array(Math.min(size, Math.max(wanted, ROOM))));
  const reader = stream.getReader();
  for (;;) {
    const { done, value } = await reader.read();
    // Some browsers do not report this as an error.
    if (done && part.end < Math.min(wanted, size)) throw new Error('the connection ended');
    if (done) return whole.subarray(0, part.end);
    const end = part.end + value.length;
    if (end > size) {
      void reader.cancel().catch(() => undefined);
      return new Uint8Array(end);
    }
    if (end > whole.length) {
      part.whole = new Uint8Array(Math.min(size, 2 * end));
      part.whole.set(whole);
      whole = part.whole;
    }
    whole.set(value, part.end);
    part.end = end;
    tell?.(end);
  }
}

/** Returns the path of an address in Node: that of a `file:` URL, or the address if it is not a URL. */
export function localPath(uri: string): string | URL | undefined {
  // Pages and workers have a location, and addresses are relative to it.
  if (globalThis.location || !(globalThis as { process?: { getBuiltinModule?: unknown } }).process?.getBuiltinModule) return undefined;
  if (/^file:/i.test(uri)) return new URL(uri);
  return /^[a-z][a-z\d+.-]+:/i.test(uri) ? undefined : uri;
}

// ---- files that a manifest names

/** Returns the address of a file that a manifest names. */
export type Address = (file: string) => string;

/**
 * Returns a function that requests files from the nearest place: from the cache, after the pending writes of now, or from the
 * network.
 */
export function asking(address: Address, way: Way): (entry: FileEntry) => Promise<Found> {
  const before = kept;
  return async (entry) => {
    const uri = address(entry.file);
    await before;
    const found = await inCache(uri, entry);
    return found ? ofResponse(found, true) : find(uri, way, 0, 'default');
  };
}

/** Milliseconds before each retry. */
const BACK_OFF = [200, 800, 2400];

/** Returns the bytes of a file. Raises ProgramError if they differ from the manifest. */
export async function verified(uri: string, entry: FileEntry, way: Way, asked: Promise<Found>, tell?: Tell): Promise<Uint8Array> {
  const part: Part = { size: entry.bytes, end: 0, tell };
  for (let time = 0; ; time++) {
    const resumed = part.end > 0;
    let found: Found | undefined;
    try {
      found = await (time ? find(uri, way, part.end, 'reload') : asked);
      if (found.ok) {
        const bytes = await found.bytes(part);
        const right = bytes.byteLength === entry.bytes && (await sha256(bytes)) === entry.sha256;
        const cache = await openCache(uri);
        if (right) {
          if (cache && !found.cached) {
            // A blob is not memory of the page.
            const blob = new Blob([bytes as Uint8Array<ArrayBuffer>]);
            write(() => cache.put(cacheKey(uri, entry), new Response(blob)));
          }
          return bytes;
        }
        part.end = 0;
        if (found.cached) await cache?.delete(cacheKey(uri, entry));
        // Perhaps halves of two versions, or an old file from the browser's own cache: ask the server once more, from the beginning.
        else if (time && !resumed) throw isPage(bytes) ? await notFound([[uri, '']]) : wrongSize(uri, bytes.byteLength, entry.bytes);
        continue;
      }
    } catch (error) {
      way.signal?.throwIfAborted();
      // After a response there is no retry, unless the transfer was interrupted. Nor is there for a disk.
      const ended = found && !(error instanceof ProgramError);
      if ((found && !ended) || time >= BACK_OFF.length || localPath(uri) !== undefined) {
        throw ended ? new ProgramError(`${uri} broke off after ${part.end} of ${entry.bytes} bytes: ${messageOf(error)}`, { cause: error }) : error;
      }
    }
    if (found && !found.ok && (time >= BACK_OFF.length || !BUSY.test(found.status))) throw await notFound([[uri, found.status]]);
    found?.cancel();
    await pause(BACK_OFF[time]!, way);
  }
}

export function pause(milliseconds: number, { signal }: Way): Promise<void> {
  return new Promise((resolve, reject) => {
    setTimeout(resolve, milliseconds);
    signal?.addEventListener('abort', () => reject(signal.reason));
  });
}

// ---- what is kept for the next visit

export async function lastManifest(uri: string): Promise<Uint8Array | undefined> {
  await kept;
  const found = await inCache(uri);
  return found && ofResponse(found).bytes();
}

/** Keeps a manifest in the place of the `last` one, if its files are kept. */
export function keepManifest(uri: string, json: Uint8Array, last: Uint8Array | undefined): void {
  if (globalThis.caches && json !== last) write(async () => (await import('./kept.js')).replace(CACHE, cacheKey(uri), json, last));
}

async function inCache(uri: string, entry?: FileEntry): Promise<Response | undefined> {
  return (await openCache(uri))?.match(cacheKey(uri, entry));
}

async function openCache(uri: string): Promise<Cache | undefined> {
  if (localPath(uri) !== undefined) return undefined;
  try {
    return await globalThis.caches?.open(CACHE);
  } catch {
    return undefined; // not allowed here, as in some private windows: weights are fetched each time
  }
}

/** The key of a file; without an entry that of a manifest, which has no known digest. Its versions differ in their queries. */
function cacheKey(uri: string, entry?: FileEntry): string {
  const url = new URL(uri, globalThis.location?.href);
  url.search = entry ? `sha256=${entry.sha256}` : `manifest${url.search}`;
  return url.href;
}

/** Pending writes to the cache. Only later writes and clearing wait for them. */
let kept: Promise<unknown> = Promise.resolve();

/** Adds a write. If it fails, the file is fetched again next time. */
function write(of: () => Promise<unknown>): void {
  kept = kept.then(of).catch(() => undefined);
}

/** Removes all cached weights. */
export async function clearCache(): Promise<void> {
  await kept;
  await globalThis.caches?.delete(CACHE);
}

// ---- checks

/** Makes the error for a file with another size, or with the same size and other contents. */
export function wrongSize(what: string, found: number, wanted: number): ProgramError {
  if (found === wanted) return tampered(what);
  if (found > wanted) return new ProgramError(`${what} is damaged: it has more than the ${wanted} bytes that the export wrote`);
  return new ProgramError(`${what} is truncated: it has ${found} bytes of ${wanted}`);
}

export function tampered(what: string): ProgramError {
  return new ProgramError(`${what} is damaged: its SHA-256 is not the one that the export wrote; fetch or export it again`);
}

export function text(bytes: Uint8Array): string {
  return new TextDecoder().decode(bytes);
}

export function hex(bytes: Uint8Array): string {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('');
}

export async function sha256(bytes: Uint8Array): Promise<string> {
  return hex(new Uint8Array(await crypto.subtle.digest('SHA-256', bytes as Uint8Array<ArrayBuffer>)));
}
