// A Flow on a device: its parts run one after another, with results on the GPU between them. In: tensors in memory or in
// buffers. Out: the same. Invariants: only conditions, trip counts, and elements and sizes that decide shapes are read back, if
// kernels compute them. A page without such a model does not fetch this file. It imports no stateful part of the library.

import type { Feed, Given, Result } from '../bound.js';
import type { Gpu } from '../device.js';
import { integerBytes, nbytes } from '../dtypes.js';
import type * as errors from '../errors.js';
import type { Executable, Wanted } from '../executable.js';
import type { Package } from '../package.js';
import type { OnProfile } from '../profile.js';
import type { Program, Weight } from '../program.js';
import { type Flow, NONE, type Part, flowOf, leaves } from './format.js';
import { Stacked, copy } from './stacked.js';
import { type Item, Values } from './values.js';

/** Rounds after which a loop waits for the GPU, so that a page stays responsive and can end it. */
const AHEAD = 64;

/** Returns the runner of a package's Flow, made with the library's own classes. Uploads each weight once. Raises ProgramError. */
export async function opened(
  Made: typeof Executable, { InputError, ProgramError, messageOf }: typeof errors,
  from: Package, gpu: Gpu, progress?: (loaded: number) => void, signal?: AbortSignal,
): Promise<Flowing> {
  let flow: Flow;
  try {
    flow = flowOf(from.program);
  } catch (error) {
    from.cancel();
    throw new ProgramError(`the model is damaged: ${messageOf(error)}`, { cause: error });
  }
  const programs = [...leaves(flow)];
  const numbers = new Map<string, number>();
  const weights: Weight[] = [];
  const number = (it: Weight): number => {
    const place = `${it.offset}|${it.bytes}|${it.matrices}`;
    if (!numbers.has(place)) numbers.set(place, weights.push(it) - 1);
    return numbers.get(place)!;
  };
  const used = programs.map((it) => it.weights.map(number));
  if (weights.some((it) => it.offset + it.bytes > from.total)) {
    from.cancel();
    throw new ProgramError('the model is damaged: it names weights that there are not');
  }
  const whole: Program = { ...from.program, weights, kernels: programs.flatMap((it) => it.kernels) };
  const first = await Made.create({ ...from, program: whole }, gpu, progress, undefined, signal);
  return new Flowing(flow, first, new Map(programs.map((it, k) => [it, first.with(it, used[k]!)])), (message) => new InputError(message));
}

export class Flowing {
  readonly program: Program;
  readonly gpu: Gpu;
  readonly #met = new WeakMap<GPUBuffer, number>();

  constructor(
    private readonly flow: Flow,
    private readonly first: Executable,
    private readonly executables: ReadonlyMap<Program, Executable>,
    private readonly wrong: (message: string) => Error,
  ) {
    // Sessions derive the operators of a model from the dispatches.
    this.program = { ...flow.program, dispatches: [...executables.keys()].flatMap((it) => it.dispatches) };
    this.gpu = first.gpu;
  }

  /** Prepares the parts that depend only on the inputs. */
  async plan(feeds: readonly Feed[]): Promise<void> {
    const { program, parts } = this.flow;
    const known = new Map(program.inputs.map((value, k) => [value, feeds[k]!]));
    for (const { kind, programs: [it], args } of parts!) {
      if (kind !== 'run' || it!.onHost || !args.every((value) => known.has(value))) continue;
      const given = args.map((value) => known.get(value)!);
      const told = it!.program.symbols.every(({ isElement, input }) => !isElement || given[input]!.bytes || given[input]!.buffer);
      if (told) await this.executables.get(it!.program)!.plan(given);
    }
  }

  async run(feeds: readonly Feed[], wanted: readonly Wanted[], tell?: OnProfile): Promise<readonly Result[]> {
    this.first.results.next();
    const values = new Values(this.gpu, this.first.results, this.#met, this.wrong);
    try {
      const given = feeds.map((it) => values.given({ ...it, dims: [...it.dims] })); // callers may change theirs meanwhile
      const made = await this.#run(this.flow, given, values, tell);
      return await this.#give(made, wanted, values);
    } finally {
      values.end();
    }
  }

  /** Returns the results of a flow, with one reference each. The given items remain the caller's. */
  async #run(flow: Flow, given: readonly Item[], values: Values, tell: OnProfile | undefined): Promise<Item[]> {
    const { program, parts } = flow;
    if (!parts) return this.#leaf(flow, given, values, tell);
    const known = new Map(program.inputs.map((value, k) => [value, values.hold(given[k]!)]));
    for (const part of parts) {
      const args = part.args.map((it) => (it === NONE ? undefined : known.get(it)!));
      const made = await this.#part(part, args, values, tell);
      part.results.forEach((it, k) => known.set(it, made[k]!));
      for (const it of part.last) {
        values.leave(known.get(it)!);
        known.delete(it);
      }
    }
    const results = program.outputs.map((it) => values.hold(known.get(it)!));
    for (const it of known.values()) values.leave(it);
    return results;
  }

  async #part(part: Part, args: readonly (Item | undefined)[], values: Values, tell: OnProfile | undefined): Promise<Item[]> {
    const { kind, programs } = part;
    const [first, ...rest] = args as Item[];
    if (kind === 'same') return [values.hold(first!)];
    if (kind === 'if') return this.#run(programs[(await values.truth(first!)) ? 0 : 1]!, rest, values, tell);
    return kind === 'loop' ? this.#loop(part, args, values, tell) : this.#run(programs[0]!, args as Item[], values, tell);
  }

  // ---- loops

  async #loop({ programs, states: count, results }: Part, args: readonly (Item | undefined)[], values: Values, tell: OnProfile | undefined): Promise<Item[]> {
    const [rounds, condition, ...rest] = args;
    const body = programs[0]!;
    const most = rounds ? integer(await values.bytes(rounds, 8)) : Infinity;
    let goes = condition ? await values.truth(condition) : true;
    let states = rest.slice(0, count).map((it) => values.hold(it!));
    const captured = rest.slice(count) as Item[];
    const stacked = results.slice(count).map((_, k) => {
      const value = body.program.values[body.program.outputs[1 + count + k]!]!;
      return new Stacked(values, value, most);
    });
    const holds = values.given({ dims: [], bytes: Uint8Array.of(1) });
    for (let round = 0; goes && round < most; round++) {
      const number = values.given({ dims: [], bytes: new Uint8Array(BigInt64Array.of(BigInt(round)).buffer) });
      const [next, ...made] = await this.#run(body, [number, holds, ...states, ...captured], values, tell);
      for (const it of states) values.leave(it);
      states = made.slice(0, count);
      made.slice(count).forEach((it, k) => {
        stacked[k]!.add(it);
        values.leave(it);
      });
      const truth = values.truth(next!);
      goes = typeof truth === 'boolean' ? truth : await truth;
      values.leave(next!);
      if (round % AHEAD === AHEAD - 1) await this.gpu.queue.onSubmittedWorkDone();
    }
    return [...states, ...stacked.map((it) => it.item())];
  }

  // ---- programs

  async #leaf({ program, sized, onHost }: Flow, given: readonly Item[], values: Values, tell: OnProfile | undefined): Promise<Item[]> {
    const executable = this.executables.get(program)!;
    const feeds = given as readonly Feed[];
    if (onHost) {
      const { shapes, elements } = await executable.layout(feeds);
      return program.outputs.map((value) => {
        const bytes = integerBytes(program.values[value]!.dtype, elements.get(value)!);
        return values.made({ dims: shapes[value]!, bytes: bytes.buffer });
      });
    }
    const found = executable.part(feeds, program.outputs.map(() => 'gpu' as const), tell?.of(program, feeds));
    const made = (found instanceof Promise ? await found : found).map((it) => values.made(it));
    if (!sized.length) return made;
    const shapes = await this.#read(sized.map(([, shape]) => [made[shape]!, 8 * made[shape]!.dims[0]!]));
    sized.forEach(([result], k) => {
      const dims = [...new BigInt64Array(shapes[k]!)].map(Number);
      const [most] = made[result]!.dims;
      if (dims.some((it) => it < 0) || dims.reduce((a, b) => a * b, 1) > most!) {
        throw this.wrong(`a result of '${program.name}' has the shape [${dims.join(', ')}], and room for ${most} elements: export the model again`);
      }
      made[result] = { ...made[result]!, dims };
    });
    for (const it of made.splice(made.length - sized.length)) values.leave(it);
    return made;
  }

  /** Reads the first bytes of values on the GPU, in one transfer. */
  async #read(all: readonly (readonly [Item, number])[]): Promise<ArrayBuffer[]> {
    const { gpu, first: { results } } = this;
    let end = 0;
    const places = all.map(([, bytes]) => {
      const at = end;
      end += Math.ceil(bytes / 16) * 16;
      return at;
    });
    if (!end) return all.map(() => new ArrayBuffer(0));
    const staging = results.stage(end);
    try {
      const encoder = gpu.device.createCommandEncoder();
      all.forEach(([{ buffer }, bytes], k) => {
        if (bytes) encoder.copyBufferToBuffer(buffer!, 0, staging, places[k]!, Math.ceil(bytes / 4) * 4);
      });
      gpu.queue.submit([encoder.finish()]);
      await gpu.map(staging);
      return all.map(([, bytes], k) => staging.getMappedRange(places[k]!, Math.ceil(bytes / 16) * 16).slice(0, bytes));
    } finally {
      results.unstage(staging);
    }
  }

  // ---- results

  /** Stores results where they are wanted. */
  async #give(made: readonly Item[], wanted: readonly Wanted[], values: Values): Promise<Result[]> {
    const { program } = this.flow;
    const size = (k: number): number => nbytes(program.values[program.outputs[k]!]!.dtype, made[k]!.dims.reduce((a, b) => a * b, 1));
    const read: number[] = [];
    const given = new Set<GPUBuffer>();
    const handed: GPUBuffer[] = [];
    const results = made.map((item, k): Result => {
      const { dims } = item;
      const place = wanted[k];
      const { name } = program.values[program.outputs[k]!]!;
      if (!place) return { dims };
      if (place === 'cpu') {
        if (!item.bytes) read.push(k);
        return { dims, ...(item.bytes && { bytes: item.bytes.slice().buffer as ArrayBuffer }) };
      }
      const { results: buffers } = this.first;
      const own = place === 'gpu' && (!size(k) ? buffers.empty(name) : values.isAlone(item) ? item.buffer! : values.take(size(k), name));
      if (own && size(k)) handed.push(own);
      const to = own || (place === 'kept' ? buffers.keep(`${name}|${dims.join()}`, size(k), name) : (place as Given).buffer);
      if (typeof place === 'object') {
        if (place.dims.join() !== dims.join()) throw this.wrong(`output '${name}' has shape [${dims.join(', ')}], the tensor passed for it has [${place.dims.join(', ')}]`);
        const bytes = Math.ceil(size(k) / 4) * 4;
        if (!(to.size >= bytes)) throw this.wrong(`the tensor '${name}' takes ${size(k)} bytes, its buffer has ${to.size}: pass one of at least ${bytes} bytes`);
        if (given.has(to)) throw this.wrong('two outputs are to go into one buffer: give each a buffer of its own');
        given.add(to);
      }
      if (item.bytes) this.gpu.write(to, 0, item.bytes);
      else if (size(k) && item.buffer !== to) copy(values, item.buffer!, 0, to, 0, size(k));
      return { dims, buffer: to };
    });
    const bytes = await this.#read(read.map((k) => [made[k]!, size(k)]));
    for (const it of handed) values.hand(it);
    read.forEach((k, place) => (results[k] = { dims: made[k]!.dims, bytes: bytes[place]! }));
    return results;
  }

  recycle(buffer: GPUBuffer): void {
    this.first.recycle(buffer);
  }

  async release(): Promise<void> {
    for (const it of [...this.executables.values(), this.first]) await it.release();
  }
}

/** Returns a 64-bit integer in memory. Trip counts beyond 2**53 are rounded, which makes no difference. */
function integer(bytes: Uint8Array): number {
  return Number(new DataView(bytes.buffer, bytes.byteOffset).getBigInt64(0, true));
}
