// An exported model, wherever it is: a folder with a manifest, one file, or bytes. In: an address or bytes. Out: its Program
// and a stream of its weights. Invariants: no weight is used whose hash differs from the manifest's; of a folder's weights
// at most one chunk is in memory at once, besides the one before it on its way into the browser's cache.

import { ProgramError, messageOf } from './errors.js';
import { FORMAT_VERSION, type Program, type Target, lack, readProgram, wrongVersion } from './program.js';

const PROGRAM = 'wgpuprog';
const PACK = 'wgpupack';
const MANIFEST_VERSION = 1;
/** Chunks that are asked for ahead of the one that is read. */
const AHEAD = 4;
const CACHE = 'onnxruntime-ep-wgpu';

/** Bytes from `offset` on of the weights. */
export interface Piece {
  readonly offset: number;
  readonly bytes: Uint8Array;
}

export interface Package {
  readonly program: Program;
  /** Bytes of all weights. */
  readonly total: number;
  /** The weights in order, as often as they are needed. */
  weights(): AsyncIterable<Piece>;
}

export interface Capabilities {
  readonly features: ReadonlySet<string>;
  readonly limits: GPUSupportedLimits;
  /** The adapter calculates on the CPU. */
  readonly software: boolean;
}

interface FileEntry {
  readonly file: string;
  readonly bytes: number;
  readonly sha256: string;
}

interface Manifest {
  readonly format: string;
  readonly version: number;
  readonly programs: readonly (FileEntry & { readonly target: Target })[];
  readonly weights: { readonly bytes: number; readonly chunks: readonly FileEntry[] };
}

/** Opens an exported model for a device with these capabilities. Raises ProgramError. */
export async function openPackage(source: string | Uint8Array, has: Capabilities): Promise<Package> {
  if (typeof source !== 'string') return ofBytes(source, 'the model', has);
  const folder = folderOf(source);
  if (folder !== undefined) {
    const response = await get(`${folder}manifest.json`);
    if (response.ok) return ofFolder(folder, await response.json(), has);
    if (/\.wgpu\/$/.test(folder) && source.startsWith(folder)) throw notFound(`${folder}manifest.json`, response);
  }
  const response = await get(source);
  if (!response.ok) throw notFound(source, response);
  return ofBytes(new Uint8Array(await response.arrayBuffer()), source, has);
}

/** The folder of an export, with a slash; that of `model.onnx` is `model.onnx.wgpu/`. Undefined for one file. */
function folderOf(uri: string): string | undefined {
  const [path, query] = [uri.replace(/[?#].*$/, ''), uri.match(/[?#].*$/)];
  if (path.endsWith('/')) return path;
  if (path.endsWith('/manifest.json')) return path.slice(0, -'manifest.json'.length);
  if (query || path.startsWith('blob:') || path.startsWith('data:')) return undefined;
  return path.endsWith('.wgpu') ? undefined : `${path}.wgpu/`;
}

async function get(uri: string): Promise<Response> {
  try {
    return await fetch(uri);
  } catch (error) {
    throw new ProgramError(`${uri} cannot be fetched: ${messageOf(error)}`, { cause: error });
  }
}

function notFound(uri: string, response: Response): ProgramError {
  return new ProgramError(`${uri} cannot be fetched: ${response.status} ${response.statusText}`);
}

// ---- bytes

async function ofBytes(bytes: Uint8Array, what: string, has: Capabilities): Promise<Package> {
  const magic = text(bytes.subarray(0, 8));
  if (magic !== PACK && magic !== PROGRAM) {
    throw new ProgramError(`${what} is not an exported model: make one of an ONNX model with \`wgpu-ep export\``);
  }
  if (bytes.byteLength < 16) throw truncated(what, bytes.byteLength, 16);
  const words = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const [version, length] = [words.getUint32(8, true), words.getUint32(12, true)];
  return magic === PACK ? ofPack(bytes, version, length, what, has) : ofProgram(bytes, version, length, what, has);
}

/** The files of a folder one after another at multiples of 16, behind the manifest that lists them in this order. */
async function ofPack(bytes: Uint8Array, version: number, length: number, what: string, has: Capabilities): Promise<Package> {
  if (version !== MANIFEST_VERSION) throw wrongVersion(what, version);
  const start = 48 + length;
  if (bytes.byteLength < start) throw truncated(what, bytes.byteLength, start);
  const json = bytes.subarray(48, start);
  if ((await sha256(json)) !== hex(bytes.subarray(16, 48))) throw tampered(what);
  const manifest = JSON.parse(text(json)) as Manifest;
  const places = new Map<string, Uint8Array>();
  let end = start;
  for (const { file, bytes: size } of [...manifest.programs, ...manifest.weights.chunks]) {
    const from = Math.ceil(end / 16) * 16;
    end = from + size;
    if (bytes.byteLength < end) throw truncated(what, bytes.byteLength, end);
    places.set(file, bytes.subarray(from, end));
  }
  const read = async (entry: FileEntry): Promise<Uint8Array> => {
    const found = places.get(entry.file)!;
    if ((await sha256(found)) !== entry.sha256) throw tampered(what);
    return found;
  };
  return ofManifest(manifest, what, has, read, () => async function* () {
    let offset = 0;
    for (const chunk of manifest.weights.chunks) {
      yield { offset, bytes: await read(chunk) };
      offset += chunk.bytes;
    }
  });
}

/** A Program as Python saves it, with its weights behind it. */
function ofProgram(bytes: Uint8Array, version: number, length: number, what: string, has: Capabilities): Package {
  if (version !== FORMAT_VERSION) throw wrongVersion(what, version);
  const start = 16 + length;
  if (bytes.byteLength < start) throw truncated(what, bytes.byteLength, start);
  const program = readProgram(text(bytes.subarray(16, start)), what, start);
  const end = program.weights.reduce((most, it) => Math.max(most, it.offset + it.bytes), start);
  if (bytes.byteLength < end) throw truncated(what, bytes.byteLength, end);
  fits(program.target, has, what);
  return {
    program,
    total: end - start,
    async *weights() {
      yield { offset: start, bytes: bytes.subarray(start, end) };
    },
  };
}

// ---- a folder, or the same in one file

function ofFolder(folder: string, manifest: Manifest, has: Capabilities): Promise<Package> {
  const read = (entry: FileEntry): Promise<Uint8Array> => verified(folder, entry);
  return ofManifest(manifest, `${folder}manifest.json`, has, read, () => pieces(folder, manifest.weights.chunks));
}

async function ofManifest(
  manifest: Manifest,
  what: string,
  has: Capabilities,
  read: (entry: FileEntry) => Promise<Uint8Array>,
  open: () => Package['weights'],
): Promise<Package> {
  if (manifest?.format !== 'onnxruntime-ep-wgpu') throw new ProgramError(`${what} is not that of an exported model`);
  if (manifest.version !== MANIFEST_VERSION) throw wrongVersion(what, manifest.version);
  const chosen = choose(manifest.programs, has);
  if (!chosen) throw new ProgramError(`${what} is damaged: it names no program`);
  fits(chosen.target, has, what);
  const weights = open(); // on their way while the program is fetched, read and compiled
  const program = readProgram(text(await read(chosen)), `${what}, ${chosen.file}`);
  const { bytes: total, chunks } = manifest.weights;
  const stored = chunks.reduce((sum, it) => sum + it.bytes, 0);
  if (stored !== total || program.weights.some((it) => it.offset + it.bytes > total)) {
    throw new ProgramError(`${what} is damaged: its chunks have ${stored} bytes, the weights have ${total}`);
  }
  return { program, total, weights };
}

/** The first that the adapter has everything for and that is made for its kind; the last one is for every adapter. */
function choose<T extends { readonly target: Target }>(programs: readonly T[], has: Capabilities): T | undefined {
  const suited = programs.filter((it) => !lack(it.target, has.features, has.limits));
  return suited.find((it) => it.target.software === has.software) ?? programs.at(-1);
}

/** The chunks of a folder, one after another; the first ones are asked for at once. */
function pieces(folder: string, chunks: readonly FileEntry[]): () => AsyncGenerator<Piece> {
  const opened = kept.then(openCache);
  // A response whose body is not read yet holds no more than the network's buffers.
  const asked = new Map<number, Promise<Response>>();
  const ask = async (entry: FileEntry): Promise<Response> => {
    const uri = folder + entry.file;
    return (await (await opened)?.match(cacheKey(uri, entry))) ?? get(uri);
  };
  const askFrom = (first: number): void => {
    for (let k = first; k < Math.min(first + AHEAD, chunks.length); k++) {
      if (asked.has(k)) continue;
      const response = ask(chunks[k]!);
      response.catch(() => undefined); // told when its turn comes
      asked.set(k, response);
    }
  };
  askFrom(0);
  return async function* () {
    let offset = 0;
    for (const [k, chunk] of chunks.entries()) {
      askFrom(k);
      const bytes = await verified(folder, chunk, await asked.get(k)!, await opened);
      asked.delete(k);
      yield { offset, bytes };
      offset += chunk.bytes;
    }
  };
}

/** The bytes of a file, from the cache or the network. Raises ProgramError when they are not those of the manifest. */
async function verified(folder: string, entry: FileEntry, response?: Response, cache?: Cache): Promise<Uint8Array> {
  const uri = folder + entry.file;
  response ??= await get(uri);
  if (!response.ok) throw notFound(uri, response);
  const cached = response.headers.has('x-sha256');
  const bytes = new Uint8Array(await response.arrayBuffer());
  const right = bytes.byteLength === entry.bytes && (await sha256(bytes)) === entry.sha256;
  if (right) {
    await kept;
    if (cache && !cached) kept = keep(cache, uri, entry, bytes);
    return bytes;
  }
  if (cached && cache) {
    await cache.delete(cacheKey(uri, entry));
    return verified(folder, entry, await get(uri), cache);
  }
  if (bytes.byteLength !== entry.bytes) throw truncated(uri, bytes.byteLength, entry.bytes);
  throw tampered(uri);
}

// ---- the cache of the browser

/** The last chunk that goes there; nobody waits for it but who has the next one, or looks what is there. */
let kept: Promise<void> = Promise.resolve();

async function openCache(): Promise<Cache | undefined> {
  try {
    return await globalThis.caches?.open(CACHE);
  } catch {
    return undefined; // not allowed here, as in some private windows: weights are fetched each time
  }
}

function cacheKey(uri: string, entry: FileEntry): string {
  return `${new URL(uri, globalThis.location?.href)}?sha256=${entry.sha256}`;
}

async function keep(cache: Cache, uri: string, entry: FileEntry, bytes: Uint8Array): Promise<void> {
  const key = cacheKey(uri, entry);
  try {
    // What this address had before is of no use any more.
    for (const old of await cache.keys(key, { ignoreSearch: true })) await cache.delete(old);
    await cache.put(key, new Response(bytes as Uint8Array<ArrayBuffer>, { headers: { 'x-sha256': entry.sha256 } }));
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

function fits(target: Target, has: Capabilities, what: string): void {
  const problem = lack(target, has.features, has.limits);
  if (problem) throw new ProgramError(`${what} ${problem}: export it for this target`);
}

function truncated(what: string, found: number, wanted: number): ProgramError {
  return new ProgramError(`${what} is truncated: it has ${found} bytes of ${wanted}`);
}

function tampered(what: string): ProgramError {
  return new ProgramError(`${what} is damaged: its SHA-256 is not the one that the export wrote; fetch or export it again`);
}

function text(bytes: Uint8Array): string {
  return new TextDecoder().decode(bytes);
}

function hex(bytes: Uint8Array): string {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('');
}

async function sha256(bytes: Uint8Array): Promise<string> {
  return hex(new Uint8Array(await crypto.subtle.digest('SHA-256', bytes as Uint8Array<ArrayBuffer>)));
}
