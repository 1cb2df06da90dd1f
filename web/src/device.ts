// A GPUDevice with what sessions share on it: compiled pipelines, layouts, and a count of the bytes they hold. In: env.webgpu,
// or a device of the caller. Out: `Gpu`. Invariant: one Gpu for each GPUDevice; every buffer that this package makes is
// made and freed here.

import { env } from 'onnxruntime-common';
import { DeviceError, OptionError, ProgramError, messageOf } from './errors.js';
import { held } from './memory.js';
import { preferenceOf } from './flags.js';
import { type Kernel, LIMITS } from './program.js';
import { reason } from './reason.js';

export const USAGE = { MAP_READ: 1, COPY_SRC: 4, COPY_DST: 8, UNIFORM: 64, STORAGE: 128 } as const;
/** Features and limits that are asked for where the adapter has them. */
const STANDARD = 'subgroup-matrix' as GPUFeatureName;
/** The same while it is Chromium's experiment, as Programs name it. */
export const MATRICES = `chromium-experimental-${STANDARD}` as GPUFeatureName;
const FEATURES = ['shader-f16', 'subgroups', 'timestamp-query', MATRICES, STANDARD] as const;
/** Dot products of bytes. Where Metal lies below, each becomes a dozen instructions. */
const BYTES = 'packed_4x8_integer_dot_product';

type Bindings = readonly ('read' | 'read_write' | 'uniform')[];
const BINDING_TYPES = { read: 'read-only-storage', read_write: 'storage', uniform: 'uniform' } as const;

const known = new WeakMap<GPUDevice, Gpu>();

export class Gpu {
  /**
   * Those of the device, `integer-dots` where it multiplies and adds four bytes in one instruction, and `discrete` where the GPU
   * has memory of its own, as far as the vendor shows.
   */
  readonly features: ReadonlySet<string>;
  readonly limits: GPUSupportedLimits;
  /** Kernels for matrix units as this browser spells them, where that is another way. */
  spelled: ((code: string) => string) | undefined;
  readonly queue: GPUQueue;
  /** The adapter calculates on the CPU. */
  readonly software: boolean;
  /** Why the device is lost; undefined while it is not. */
  lost: string | undefined;
  readonly #layouts = new Map<string, { group: GPUBindGroupLayout; pipeline: GPUPipelineLayout }>();
  readonly #pipelines = new Map<string, Promise<GPUComputePipeline>>();
  readonly #sizes = new WeakMap<GPUBuffer, number>();
  /** The first buffer that there was no memory for, since that was reported last; known once `#asked` is there. */
  #refused: string | undefined;
  #asked: Promise<void> | undefined;
  /** Pipelines compiled on this device. */
  compiled = 0;

  private constructor(readonly device: GPUDevice) {
    this.limits = device.limits;
    this.queue = device.queue;
    // Older browsers do not say; the name does.
    const { isFallbackAdapter, description, architecture, vendor } = device.adapterInfo ?? {};
    this.software = isFallbackAdapter ?? /swiftshader|llvmpipe/i.test(`${description} ${architecture}`);
    const own = !this.software && vendor && vendor !== 'apple' && globalThis.navigator?.gpu?.wgslLanguageFeatures?.has(BYTES);
    this.features = new Set([
      ...(device.features as ReadonlySet<string>), ...(device.features.has(STANDARD) ? [MATRICES] : []), ...(own ? ['integer-dots'] : []), ...(vendor === 'nvidia' ? ['discrete'] : []),
    ]); // prettier-ignore
    void device.lost.then((info) => {
      this.lost ??= info.message || info.reason || 'unknown reason';
    });
    // The promise is settled only after calls that follow.
    const destroy = device.destroy;
    device.destroy = (): undefined => {
      this.lost ??= 'it was destroyed';
      destroy.call(device);
    };
  }

  static of(device: GPUDevice): Gpu {
    let gpu = known.get(device);
    if (!gpu) known.set(device, (gpu = new Gpu(device)));
    return gpu;
  }

  // ---- buffers

  /** A buffer of at least `size` bytes, a multiple of 16. */
  buffer(size: number, usage: number, label: string): GPUBuffer {
    const { device } = this;
    const bytes = Math.max(16, Math.ceil(size / 16) * 16);
    device.pushErrorScope('out-of-memory');
    const buffer = device.createBuffer({ size: bytes, usage, label });
    this.#asked = device.popErrorScope().then(
      (error) => { if (error) this.#refused ??= `${label} takes ${bytes} bytes, for which the device has no memory left`; },
      () => undefined,
    );
    held.buffers += 1;
    held.bytes += bytes;
    this.#sizes.set(buffer, bytes);
    return buffer;
  }

  /** For tensors: bound, copied from and to. */
  storage(size: number, label: string): GPUBuffer {
    return this.buffer(size, USAGE.STORAGE | USAGE.COPY_SRC | USAGE.COPY_DST, label);
  }

  /** Frees a buffer of `buffer()`; twice is harmless. Work that is submitted still sees it. */
  free(buffer: GPUBuffer): void {
    const bytes = this.#sizes.get(buffer);
    if (bytes === undefined) return;
    this.#sizes.delete(buffer);
    held.buffers -= 1;
    held.bytes -= bytes;
    buffer.destroy();
  }

  write(buffer: GPUBuffer, offset: number, data: Uint8Array): void {
    const whole = data.byteLength & ~3;
    const { queue } = this;
    const from = data as Uint8Array<ArrayBuffer>;
    if (whole) queue.writeBuffer(buffer, offset, from, 0, whole);
    if (whole < data.byteLength) {
      const rest = new Uint8Array(4);
      rest.set(data.subarray(whole));
      queue.writeBuffer(buffer, offset + whole, rest);
    }
  }

  /** Waits for the GPU and gives the first `bytes` of a buffer. */
  async read(buffer: GPUBuffer, bytes: number): Promise<ArrayBuffer> {
    if (!bytes) return new ArrayBuffer(0);
    const size = Math.ceil(bytes / 4) * 4;
    const staging = this.buffer(size, USAGE.MAP_READ | USAGE.COPY_DST, 'readback');
    try {
      const encoder = this.device.createCommandEncoder();
      encoder.copyBufferToBuffer(buffer, 0, staging, 0, size);
      this.queue.submit([encoder.finish()]);
      await this.map(staging);
      return staging.getMappedRange(0, size).slice(0, bytes);
    } finally {
      this.free(staging);
    }
  }

  /** Maps a buffer for reading, or says why the device cannot. */
  async map(buffer: GPUBuffer): Promise<void> {
    try {
      await buffer.mapAsync(1);
    } catch (error) {
      // Nothing unmaps it meanwhile, so the device is lost, whether or not that is reported yet.
      if ((error as Error).name === 'AbortError') this.lost ??= messageOf(error);
      throw this.lost ? this.lostError() : new DeviceError(`results cannot be read: ${(await this.#noMemory()) ?? messageOf(error)}`, { cause: error });
    }
  }

  /** Which buffer there was no memory for, reported once. */
  async #noMemory(): Promise<string | undefined> {
    await this.#asked;
    const said = this.#refused;
    this.#refused = undefined;
    return said;
  }

  lostError(): DeviceError {
    return new DeviceError(`the WebGPU device is lost (${this.lost}); tensors on it are gone; the next run makes a new one, unless the device was yours`);
  }

  /** Calls `work` and raises what the device has against its calls, which WebGPU otherwise only prints. */
  async guarded<T>(what: string, work: () => T): Promise<T> {
    const { device } = this;
    device.pushErrorScope('validation');
    device.pushErrorScope('out-of-memory');
    let result: T;
    const scopes: Promise<GPUError | null>[] = [];
    try {
      result = work();
    } finally {
      for (let k = 0; k < 2; k++) scopes.push(device.popErrorScope().catch(() => null));
    }
    const problems = await Promise.all(scopes);
    const refused = await this.#noMemory();
    if (this.lost) throw this.lostError();
    const problem = refused ?? problems.find((it) => it)?.message;
    if (problem !== undefined) throw new DeviceError(`${what}: ${problem || 'the device has no memory left'}`);
    return result;
  }

  // ---- pipelines

  layout(bindings: Bindings): { group: GPUBindGroupLayout; pipeline: GPUPipelineLayout } {
    const key = bindings.join();
    let layout = this.#layouts.get(key);
    if (!layout) {
      const entries = bindings.map((kind, binding) => ({ binding, visibility: 4, buffer: { type: BINDING_TYPES[kind] } }));
      const group = this.device.createBindGroupLayout({ entries });
      layout = { group, pipeline: this.device.createPipelineLayout({ bindGroupLayouts: [group] }) };
      this.#layouts.set(key, layout);
    }
    return layout;
  }

  /** The pipeline of a kernel's variant, compiled once on this device. Raises ProgramError with the compiler's message. */
  pipeline(kernel: Kernel, variant: number): Promise<GPUComputePipeline> {
    const code = kernel.wgsl[variant]!;
    const bindings = bindingsOf(kernel);
    const key = `${bindings.join()}\n${code}`;
    let pipeline = this.#pipelines.get(key);
    if (!pipeline) {
      this.compiled += 1;
      pipeline = this.#compile(code, this.layout(bindings).pipeline, kernel.label);
      // A caller that awaits it gets the error; there is none when it is compiled ahead.
      pipeline.catch(() => this.#pipelines.delete(key));
      this.#pipelines.set(key, pipeline);
    }
    return pipeline;
  }

  async #compile(text: string, layout: GPUPipelineLayout, label: string): Promise<GPUComputePipeline> {
    const code = this.spelled?.(text) ?? text;
    const module = this.device.createShaderModule({ code, label });
    try {
      return await this.device.createComputePipelineAsync({ layout, label, compute: { module, entryPoint: 'main' } });
    } catch (error) {
      if (this.lost) throw this.lostError();
      const why = await reason((it) => it.uncompiled(module, code));
      throw new ProgramError(`the kernel '${label}' does not compile${why ?? `: ${messageOf(error)}`}`, { cause: error });
    }
  }
}

/** The bindings with the uniform block, as a pipeline needs them. */
export function bindingsOf(kernel: Kernel): Bindings {
  return kernel.uniforms ? [...kernel.bindings, 'uniform'] : kernel.bindings;
}

// ---- the device of env.webgpu

interface Flags {
  adapter?: GPUAdapter;
  powerPreference?: GPUPowerPreference;
  forceFallbackAdapter?: boolean;
}
const flags = env.webgpu as unknown as Flags;
let current: Promise<GPUDevice> | undefined;

// As in onnxruntime-web: reading `device` gives a promise, and makes the device when there is none yet.
Object.defineProperty(flags, 'device', {
  configurable: true,
  enumerable: true,
  get: () => (current ??= request()),
  set: (device: GPUDevice | Promise<GPUDevice> | undefined) => {
    if (device && !('limits' in Object(device) || 'then' in Object(device))) throw wrongFlag('device', device);
    current = device && Promise.resolve(device);
  },
});

/** The device of env.webgpu on which sessions run that were not given another, a new one after a loss. Raises DeviceError. */
export async function sharedGpu(): Promise<Gpu> {
  const asked = (current ??= request());
  try {
    const gpu = Gpu.of(await asked);
    // A loss is reported in a microtask of its own, which has to run first.
    await Promise.resolve();
    if (!gpu.lost) return gpu;
  } catch (error) {
    if (current === asked) current = undefined;
    throw error;
  }
  if (current === asked) current = request();
  return Gpu.of(await current);
}

async function request(): Promise<GPUDevice> {
  const adapter = await sharedAdapter();
  try {
    return await adapter.requestDevice({
      label: 'onnxruntime-ep-wgpu-web',
      requiredFeatures: FEATURES.filter((it) => adapter.features.has(it)),
      requiredLimits: Object.fromEntries(Object.keys(LIMITS).map((it) => [it, adapter.limits[it as keyof typeof LIMITS]])),
    });
  } catch (error) {
    throw new DeviceError(`the WebGPU adapter gives no device: ${messageOf(error)}`, { cause: error });
  } finally {
    given.add(adapter);
  }
}

// Adapters that gave their device: one gives only one.
const given = new WeakSet<GPUAdapter>();

/** The adapter of env.webgpu, asked for when there is none that can still give a device. Raises DeviceError, OptionError. */
export async function sharedAdapter(): Promise<GPUAdapter> {
  if (!flags.adapter || given.has(flags.adapter)) flags.adapter = await requestAdapter();
  if (!flags.adapter.limits) throw wrongFlag('adapter', flags.adapter);
  return flags.adapter;
}

function wrongFlag(name: string, value: unknown): OptionError {
  return new OptionError(`env.webgpu.${name} is ${String(value)}, it takes that of WebGPU`);
}

/** Whether env.webgpu has a device already. */
export function hasDevice(): boolean {
  return current !== undefined;
}

async function requestAdapter(): Promise<GPUAdapter> {
  const gpu = (globalThis.navigator as Navigator | undefined)?.gpu;
  if (!gpu) {
    throw new DeviceError(`there is no WebGPU here (navigator.gpu${(await reason((it) => it.withoutGpu())) ?? ')'}`);
  }
  const { forceFallbackAdapter } = flags;
  const powerPreference = preferenceOf(flags);
  const adapter = await gpu.requestAdapter({ powerPreference, forceFallbackAdapter } as GPURequestAdapterOptions);
  if (!adapter) throw new DeviceError('there is WebGPU here, but no adapter: no GPU has a driver that it supports');
  return adapter;
}
