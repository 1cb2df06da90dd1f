// Files of an export: from the network, from the browser's cache, or in Node from the disk. In: an address. Out: bytes, with the
// hash that the manifest has, or a ProgramError. Invariant: a file of known size is in memory once, however it arrives.

import { ProgramError, messageOf } from './errors.js';
import type { Found } from './found.js';

const CACHE = 'onnxruntime-ep-wgpu';

export interface FileEntry {
  readonly file: string;
  readonly bytes: number;
  readonly sha256: string;
}

// ---- where files are

/** Looks for a file. Raises ProgramError when nobody answers. */
export async function find(uri: string): Promise<Found> {
  const local = localPath(uri);
  if (local !== undefined) return (await import('./disk.js')).onDisk(local);
  try {
    return ofResponse(await fetch(uri));
  } catch (error) {
    throw new ProgramError(`${uri} cannot be fetched: ${messageOf(error)}`, { cause: error });
  }
}

export function notFound(uri: string, status: string): ProgramError {
  const verb = localPath(uri) === undefined ? 'fetched' : 'read';
  return new ProgramError(`${uri} cannot be ${verb}: ${status}; put there what \`wgpu-ep export\` wrote`);
}

function ofResponse(response: Response, cached = false): Found {
  return {
    ok: response.ok,
    status: `${response.status} ${response.statusText}`,
    cached,
    bytes: (size) => bodyOf(response, size),
    cancel: () => void response.body?.cancel().catch(() => undefined),
  };
}

/** The body of a response, straight into an array of the size that it should have; a longer array is a sign of more. */
export async function bodyOf(response: Response, size: number | undefined): Promise<Uint8Array> {
  if (size === undefined || !response.body) return new Uint8Array(await response.arrayBuffer());
  const whole = new Uint8Array(size);
  const reader = response.body.getReader();
  let end = 0;
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return end < size ? whole.slice(0, end) : whole;
    if (end + value.length > size) {
      void reader.cancel().catch(() => undefined);
      return new Uint8Array(end + value.length);
    }
    whole.set(value, end);
    end += value.length;
  }
}

/** The path that an address is in Node: that of a `file:` URL, or what is no URL at all. */
export function localPath(uri: string): string | URL | undefined {
  // Pages and workers have a location, to which an address is relative.
  if (globalThis.location || !(globalThis as { process?: { getBuiltinModule?: unknown } }).process?.getBuiltinModule) return undefined;
  if (/^file:/i.test(uri)) return new URL(uri);
  return /^[a-z][a-z\d+.-]+:/i.test(uri) ? undefined : uri;
}

// ---- files that a manifest names

/** Where a file lies that a manifest names. */
export type Address = (file: string) => string;

/** Asks for files where they are nearest: in the cache as it is now, once what is on its way there has arrived. */
export function asking(address: Address): (entry: FileEntry) => Promise<Found> {
  const before = kept;
  return async (entry) => {
    const uri = address(entry.file);
    await before;
    const found = await (await openCache(uri))?.match(cacheKey(uri, entry));
    return found ? ofResponse(found, true) : find(uri);
  };
}

/** The bytes of a file. Raises ProgramError when they are not those of the manifest. */
export async function verified(uri: string, entry: FileEntry, found?: Found): Promise<Uint8Array> {
  found ??= await find(uri);
  if (!found.ok) throw notFound(uri, found.status);
  const bytes = await found.bytes(entry.bytes);
  const right = bytes.byteLength === entry.bytes && (await sha256(bytes)) === entry.sha256;
  const cache = await openCache(uri);
  if (right) {
    if (cache && !found.cached) kept = keep(kept, cache, uri, entry, bytes);
    return bytes;
  }
  if (found.cached && cache) {
    await cache.delete(cacheKey(uri, entry));
    return verified(uri, entry);
  }
  if (bytes.byteLength !== entry.bytes) throw wrongSize(uri, bytes.byteLength, entry.bytes);
  throw tampered(uri);
}

async function openCache(uri: string): Promise<Cache | undefined> {
  if (localPath(uri) !== undefined) return undefined;
  try {
    return await globalThis.caches?.open(CACHE);
  } catch {
    return undefined; // not allowed here, as in some private windows: weights are fetched each time
  }
}

function cacheKey(uri: string, entry: FileEntry): string {
  const url = new URL(uri, globalThis.location?.href);
  url.search = `sha256=${entry.sha256}`;
  return url.href;
}

/** What is on its way into the cache; nobody waits for it but who has more, or clears it. */
let kept: Promise<void> = Promise.resolve();

async function keep(before: Promise<void>, cache: Cache, uri: string, entry: FileEntry, bytes: Uint8Array): Promise<void> {
  const key = cacheKey(uri, entry);
  // A blob, because that is no memory of the page.
  const response = new Response(new Blob([bytes as Uint8Array<ArrayBuffer>]));
  await before;
  try {
    // What this address had before is of no use any more.
    for (const old of await cache.keys(key, { ignoreSearch: true })) await cache.delete(old);
    await cache.put(key, response);
  } catch {
    // The quota is used up: the weights are fetched again next time.
  }
}

/** Removes all weights that were cached. */
export async function clearCache(): Promise<void> {
  await kept;
  await globalThis.caches?.delete(CACHE);
}

// ---- checks

export function wrongSize(what: string, found: number, wanted: number): ProgramError {
  if (found > wanted) return new ProgramError(`${what} is damaged: it has more than the ${wanted} bytes that the export wrote`);
  return new ProgramError(`${what} is truncated: it has ${found} bytes of ${wanted}`);
}

export function tampered(what: string): ProgramError {
  return new ProgramError(`${what} is damaged: its SHA-256 is not the one that the export wrote; fetch or export it again`);
}

export function hex(bytes: Uint8Array): string {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('');
}

export async function sha256(bytes: Uint8Array): Promise<string> {
  return hex(new Uint8Array(await crypto.subtle.digest('SHA-256', bytes as Uint8Array<ArrayBuffer>)));
}
