// An exported model: a folder with a manifest, one file, or bytes. In: an address or bytes. Out: its Program and a stream of
// its weights. Invariants: only weights with the manifest's hash are used. Of a folder's weights at most two chunks are in
// memory at once, plus the inflated data of one of them, while the next ones are being fetched.

import { LimitError, NotExportedError, ProgramError, messageOf } from './errors.js';
import {
  type Address, type FileEntry, type Tried, type Way, asking, filled, find, hex, isPage, keepManifest, lastManifest, localPath,
  notFound, pause, sha256, tampered, text, verified, wrongSize,
} from './files.js';
import { BUSY, type Found, type Tell } from './found.js';
import { BASELINE, type MatrixUnit, type Program, type Target, damaged, lack, readExport, targetOf, wrongVersion } from './program.js';
import { reason } from './reason.js';

const PACK = 'wgpupack';
const MANIFEST_VERSION = 5;
const MANIFEST = /(^|\/)manifest\.json(\?.*)?$/s;
/** The names of an export's files. None leads out of its folder. */
const FILE = /^[a-z][a-z\d-]*(\.[a-z\d]+)+$/;
/** The most bytes that one byte of deflated data inflates to. */
const MOST_INFLATED = 1032;
/** The most bytes of the texts of Programs. No longer text can be read. */
const MOST_TEXT = 2 ** 28;
/** Chunks that are requested ahead of the one that is read. */
const AHEAD = 4;
/** Chunks that are read and checked at once. The thread that uploads them waits for each of these. */
const AT_ONCE = 2;

/** Milliseconds that a kept manifest waits for that of the server. */
const MOST_WAIT = 2000;

/** Receives bytes of the weights, which begin at `offset`. Keeps no reference to them. */
export type Take = (offset: number, bytes: Uint8Array) => void;

export interface Package {
  readonly program: Program;
  /** Bytes of all weights. */
  readonly total: number;
  /** Passes all weights to `take`. `arrived` receives the number of their bytes that have arrived. */
  weights(take: Take, arrived: Tell): Promise<void>;
  /** Releases weights that will not be taken. */
  cancel(): void;
}

export interface Capabilities {
  readonly features: ReadonlySet<string>;
  readonly limits: GPUSupportedLimits;
  /** Returns the products of matrix units, after a test. `begun` receives the tested ones before the result. */
  readonly matrices?: ((begun?: (tried: readonly MatrixUnit[]) => void) => Promise<readonly MatrixUnit[]>) | undefined;
  /** Receives a Program that the device will probably run. */
  readonly ahead?: (program: Program) => unknown;
  /** Whether the adapter runs on the CPU. */
  readonly software: boolean;
}

/** The capabilities of a device that may be requested while files arrive. */
type Asked = Capabilities | Promise<Capabilities>;

/** Bytes of weights. `inflated` is their number if the file is deflated. */
interface Chunk extends FileEntry {
  readonly inflated?: number;
}

interface Manifest {
  readonly format: string;
  readonly version: number;
  /** Files of Programs, in order of preference. Their targets have the fields that differ from BASELINE. */
  readonly programs: readonly (FileEntry & { readonly targets: readonly Partial<Target>[] })[];
  readonly weights: { readonly bytes: number; readonly chunks: readonly Chunk[] };
}

/**
 * Opens an exported model for a device with these capabilities. Raises ProgramError, LimitError if they do not suffice, and
 * the reason of an aborted signal.
 */
export async function openPackage(source: string | Uint8Array, has: Asked, way: Way = {}): Promise<Package> {
  if (typeof source !== 'string') return ofBytes(source, 'the model', has);
  const tried: Tried = [];
  const places = placesOf(source);
  // The manifest of the last visit is opened while the server is asked for the current one, which decides if it arrives in time.
  let last: Uint8Array | undefined;
  let begun: Promise<Package> | undefined;
  for (const place of places) {
    if (!last && MANIFEST.test(place) && (last = await lastManifest(place))) begun = ofFolder(place, last, has, way, last);
  }
  const same = (json: Uint8Array): boolean => text(json) === text(last!);
  begun?.catch(ignore); // raised if it is used
  const late = begun && pause(MOST_WAIT, way);
  for (const place of places) {
    const isManifest = MANIFEST.test(place);
    const asked = find(place, way).then(async (found) => [found, found.ok && isManifest && (await found.bytes())] as const);
    let answer;
    try {
      answer = await (late ? Promise.race([asked, late]) : asked);
    } catch (error) {
      way.signal?.throwIfAborted();
      if (!begun) throw error;
    }
    if (!answer) {
      // For the next visit. Until the files of another version are here, the kept one stays.
      void asked.then(async ([, json]) => json && !same(json) && (await ofFolder(place, json, has, way, last)).weights(ignore, ignore)).catch(ignore);
      return begun!;
    }
    const [found, json] = answer;
    if (begun && (BUSY.test(found.status) || (json && same(json)))) return begun;
    const bytes = json || (found.ok && (await found.bytes(undefined, PACK)));
    if (bytes && !isPage(bytes)) {
      cancel(begun);
      if (!isManifest) return ofBytes(bytes, source, has, tried);
      return ofFolder(place, bytes, has, way, last);
    }
    found.cancel();
    // The requested place is reported first.
    tried[place === source ? 'unshift' : 'push']([place, bytes ? '' : found.status]);
  }
  cancel(begun);
  throw await notFound(tried);
}

const ignore = (): void => undefined;

function cancel(opened: Promise<Pick<Found, 'cancel'>> | undefined): void {
  void opened?.then((it) => it.cancel(), ignore);
}

/** Returns the possible places of an export with this name, in the order of attempts: a file, or the manifest in a folder. */
function placesOf(uri: string): string[] {
  // A path has no query.
  const [, path, query = ''] = localPath(uri) === uri ? ['', uri] : uri.match(/^([^?#]*)(\?[^#]*)?/)!;
  if (/^(blob|data):/.test(uri) || /(^|\/)manifest\.json$/.test(path!)) return [uri];
  const within = (folder: string): string => `${folder}/manifest.json${query}`;
  if (path!.endsWith('/')) return [within(path!.slice(0, -1))];
  const [inside, beside] = [within(path!), within(`${path}.wgpu`)];
  if (/\.(onnx|ort)$/.test(path!)) return [beside, uri];
  // `wgpu-ep export` gives such a name to a folder, and a name with one extension to a file.
  if (path!.endsWith('.wgpu')) return /\.(onnx|ort)\.wgpu$/.test(path!) ? [inside, uri] : [uri, inside];
  return query ? [uri, inside, beside] : [inside, beside, uri];
}

// ---- bytes

async function ofBytes(bytes: Uint8Array, what: string, has: Asked, tried: Tried = []): Promise<Package> {
  if (text(bytes.subarray(0, 8)) !== PACK) {
    throw new NotExportedError(`${what} is not an exported model${(await reason((it) => it.unexported(what, tried))) ?? ''}`);
  }
  if (bytes.byteLength < 16) throw wrongSize(what, bytes.byteLength, 16);
  const words = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const [version, length] = [words.getUint32(8, true), words.getUint32(12, true)];
  // The files of a folder, one after another at multiples of 16, after the manifest that lists them in this order.
  if (version !== MANIFEST_VERSION) throw wrongVersion(what, version, MANIFEST_VERSION);
  const start = 48 + length;
  if (bytes.byteLength < start) throw wrongSize(what, bytes.byteLength, start);
  const json = bytes.subarray(48, start);
  if ((await sha256(json)) !== hex(bytes.subarray(16, 48))) throw tampered(what);
  const manifest = parsed(json, what);
  const places = new Map<string, Uint8Array>();
  let end = start;
  for (const { file, bytes: size } of [...manifest.programs, ...manifest.weights.chunks]) {
    const from = Math.ceil(end / 16) * 16;
    end = from + size;
    if (bytes.byteLength < end) throw wrongSize(what, bytes.byteLength, end);
    places.set(file, bytes.subarray(from, end));
  }
  const read = async (entry: FileEntry): Promise<Uint8Array> => {
    const found = places.get(entry.file)!;
    if ((await sha256(found)) !== entry.sha256) throw tampered(what);
    return found;
  };
  const weights = async (take: Take): Promise<void> => {
    let offset = 0;
    for (const chunk of manifest.weights.chunks) {
      take(offset, await inflatedChunk(await read(chunk), chunk, what));
      offset += weightBytes(chunk);
    }
  };
  return ofManifest(manifest, what, has, read, () => ({ weights, cancel: ignore }));
}

// ---- a folder, or the same in one file

/** Opens a folder. Its manifest replaces the `last` one in the cache after all weights have arrived. */
async function ofFolder(uri: string, json: Uint8Array, has: Asked, way: Way, last: Uint8Array | undefined): Promise<Package> {
  const manifest = parsed(json, uri);
  const address: Address = (file) => uri.replace(MANIFEST, (_, slash: string, query = '') => slash + file + query);
  const ask = asking(address, way);
  const read: Read = (entry, asked = ask(entry), tell?) => verified(address(entry.file), entry, way, asked, tell);
  return ofManifest(manifest, uri, has, read, () => chunksOf(uri, manifest.weights.chunks, ask, read, () => keepManifest(uri, json, last)));
}

/** Reads a requested file, or requests it. */
type Read = (entry: FileEntry, asked?: Promise<Found>, tell?: Tell) => Promise<Uint8Array>;

/** The chunks of an export, in transfer. */
type Chunks = Pick<Package, 'weights' | 'cancel'>;

async function ofManifest(
  manifest: Manifest,
  what: string,
  asked: Asked,
  read: (entry: FileEntry) => Promise<Uint8Array>,
  open: () => Chunks,
): Promise<Package> {
  // Weights are the same for every device. If it is known that there is no device, nothing is requested.
  await Promise.race([asked, undefined]);
  const chunks = open();
  try {
    return { ...(await ofDevice(manifest, what, await asked, read)), ...chunks };
  } catch (error) {
    chunks.cancel();
    throw error;
  }
}

/** Returns the Program of an export for a device. */
async function ofDevice(
  manifest: Manifest, what: string, has: Capabilities, read: (entry: FileEntry) => Promise<Uint8Array>,
): Promise<Pick<Package, 'program' | 'total'>> {
  const all = damaged(what, () => manifest.programs.flatMap((entry) => [entry.targets ?? []].flat().map((it, number) => (
    { entry, number, target: targetOf({ ...BASELINE, ...it }) }
  )))); // prettier-ignore
  type Choice = (typeof all)[number];
  // The first that is made for the adapter's kind and needs nothing that the adapter lacks. The last one is for every adapter.
  const choose = (units?: readonly MatrixUnit[]): Choice | undefined => (
    all.find(({ target: it }) => it.software === has.software && !lack(it, has.features, has.limits, units))
  ); // prettier-ignore
  const programOf = async ({ entry, number, target }: Choice): Promise<Program> => {
    const name = `${what}, ${entry.file}`;
    return readExport(text(await inflated(await read(entry), name)), number, target, name);
  };
  let likely: Choice | undefined;
  let reading: Promise<Program> | undefined;
  const units = all.some(({ target }) => target.matrices.length) ? await has.matrices?.((tried) => {
    reading = (likely = choose(tried)) && programOf(likely);
    reading?.then(has.ahead).catch(ignore); // raised if it is chosen
  }) : undefined;
  let chosen = choose(units);
  if (!chosen) {
    if (!(chosen = all.at(-1))) throw new ProgramError(`${what} is damaged: it names no program`);
    fits(chosen.target, has, what, units);
  }
  const program = await (chosen === likely ? reading! : programOf(chosen));
  const { bytes: total, chunks } = manifest.weights;
  const stored = chunks.reduce((sum, it) => sum + weightBytes(it), 0);
  if (stored !== total || program.weights.some((it) => it.offset + it.bytes > total)) {
    throw new ProgramError(`${what} is damaged: its chunks have ${stored} bytes, the weights have ${total}`);
  }
  return { program, total };
}

function isSize(it: unknown): boolean {
  return Number.isSafeInteger(it) && (it as number) >= 0;
}

/** Passes on the chunks of a folder. Requests the first ones at once. */
function chunksOf(
  uri: string, chunks: readonly Chunk[], ask: ReturnType<typeof asking>, read: Read, done: () => void,
): Chunks {
  const asked: Promise<Found>[] = [];
  const cancelAll = (): void => asked.forEach(cancel);
  let [next, offset, all] = [0, 0, 0];
  const askAhead = (): void => {
    for (let k = asked.length; k < Math.min(next + AHEAD, chunks.length); k++) {
      (asked[k] = ask(chunks[k]!)).catch(ignore); // raised when it is awaited
    }
  };
  // One call per chunk, because an async function keeps all of its variables until it ends.
  const one = async (take: Take, arrived: Tell): Promise<void> => {
    askAhead();
    const [found, chunk, from] = [asked[next], chunks[next++]!, offset];
    offset += weightBytes(chunk);
    let before = 0;
    const tell: Tell = (bytes) => {
      const now = Math.floor((bytes / chunk.bytes) * weightBytes(chunk));
      arrived((all += now - before));
      before = now;
    };
    const bytes = await inflatedChunk(await read(chunk, found, tell), chunk, uri);
    if (next <= chunks.length) take(from, bytes);
  };
  const weights: Chunks['weights'] = async (take, arrived) => {
    const some = async (): Promise<void> => {
      while (next < chunks.length) await one(take, arrived);
    };
    try {
      await Promise.all(Array.from({ length: AT_ONCE }, some));
      done();
    } catch (error) {
      next = Infinity; // nothing more is passed on
      cancelAll();
      throw error;
    }
  };
  askAhead();
  return { weights, cancel: cancelAll };
}

// ---- texts

/** Parses a manifest, with the names of files in its folder and their sizes. Raises ProgramError. */
function parsed(json: Uint8Array, what: string): Manifest {
  const manifest = damaged(what, () => JSON.parse(text(json)) as Manifest);
  if (manifest?.format !== 'onnxruntime-ep-wgpu') throw new ProgramError(`${what} is not that of an exported model`);
  if (manifest.version !== MANIFEST_VERSION) throw wrongVersion(what, manifest.version, MANIFEST_VERSION);
  const whole = [manifest.programs, manifest.weights?.chunks].every((all) => Array.isArray(all) && all.every((it: Chunk | undefined) => (
    typeof it?.file === 'string' && FILE.test(it.file) && /^[\da-f]{64}$/.test(it.sha256) && isSize(it.bytes)
    && (it.inflated === undefined || (isSize(it.inflated) && it.inflated <= (it.bytes + 1) * MOST_INFLATED))
  ))); // prettier-ignore
  if (!whole || !isSize(manifest.weights.bytes)) throw new ProgramError(`${what} is damaged: it does not name its files`);
  return manifest;
}

function weightBytes({ bytes, inflated }: Chunk): number {
  return inflated ?? bytes;
}

/** Returns the weights of a chunk. */
async function inflatedChunk(bytes: Uint8Array, { file, inflated: size }: Chunk, what: string): Promise<Uint8Array> {
  if (size === undefined) return bytes;
  const name = `${what}, ${file}`;
  const whole = await inflated(bytes, name, size);
  if (whole.byteLength !== size) throw wrongSize(name, whole.byteLength, size);
  return whole;
}

async function inflated(bytes: Uint8Array, what: string, size = MOST_TEXT): Promise<Uint8Array> {
  // Without a Response, for which Node would first load all of its fetch.
  const stream = new Blob([bytes as Uint8Array<ArrayBuffer>]).stream().pipeThrough(new DecompressionStream('deflate'));
  try {
    const whole = await filled(stream, { size, end: 0 });
    if (whole.length > size) throw new Error(`it has more than ${size} bytes`);
    return whole;
  } catch (error) {
    throw new ProgramError(`${what} is damaged: ${messageOf(error)}`, { cause: error });
  }
}

export function fits(target: Target, has: Capabilities, what: string, units?: readonly MatrixUnit[]): void {
  const problem = lack(target, has.features, has.limits, units);
  if (problem) throw new LimitError(`${what} ${problem}: export it for this target`);
}
