// A GPUDevice with the objects that sessions share on it: pipelines, layouts, and a count of the bytes of buffers. In:
// env.webgpu, or a device of the caller. Out: `Gpu`. Invariants: one Gpu per GPUDevice. Every buffer of this package is created
// and freed here.

import { env } from 'onnxruntime-common';
import { DeviceError, OptionError, ProgramError, messageOf } from './errors.js';
import { held } from './memory.js';
import { preferenceOf } from './flags.js';
import { type Kernel, LIMITS } from './program.js';
import { reason } from './reason.js';

export const USAGE = { MAP_READ: 1, COPY_SRC: 4, COPY_DST: 8, UNIFORM: 64, STORAGE: 128 } as const;
/** The standard's name of a feature that is requested if the adapter has it. */
const STANDARD = 'subgroup-matrix' as GPUFeatureName;
/** The name of the same feature as Chromium's experiment, which Programs use. */
export const MATRICES = `chromium-experimental-${STANDARD}` as GPUFeatureName;
const FEATURES = ['shader-f16', 'subgroups', 'timestamp-query', MATRICES, STANDARD] as const;
/** Dot products of bytes. On Metal each becomes a dozen instructions. */
const BYTES = 'packed_4x8_integer_dot_product';

type Bindings = readonly ('read' | 'read_write' | 'uniform')[];
const BINDING_TYPES = { read: 'read-only-storage', read_write: 'storage', uniform: 'uniform' } as const;

const known = new WeakMap<GPUDevice, Gpu>();

export class Gpu {
  /**
   * The features of the device. In addition `integer-dots`, if the GPU multiplies and adds four bytes in one instruction, and
   * `discrete`, if it has memory of its own; both are derived from the vendor.
   */
  readonly features: ReadonlySet<string>;
  readonly limits: GPUSupportedLimits;
  /** Converts kernels for matrix units to this browser's syntax, if it differs. */
  spelled: ((code: string) => string) | undefined;
  readonly queue: GPUQueue;
  /** Whether the adapter runs on the CPU. */
  readonly software: boolean;
  /** The reason for the loss of the device; undefined if it is not lost. */
  lost: string | undefined;
  readonly #layouts = new Map<string, { group: GPUBindGroupLayout; pipeline: GPUPipelineLayout }>();
  readonly #pipelines = new Map<string, Promise<GPUComputePipeline>>();
  readonly #sizes = new WeakMap<GPUBuffer, number>();
  /** The first buffer that could not be allocated since the last report. Valid after `#asked`. */
  #refused: string | undefined;
  #asked: Promise<void> | undefined;
  /** The number of pipelines compiled on this device. */
  compiled = 0;

  private constructor(readonly device: GPUDevice) {
    this.limits = device.limits;
    this.queue = device.queue;
    // Older browsers lack the property; the name identifies such adapters.
    const { isFallbackAdapter, description, architecture, vendor } = device.adapterInfo ?? {};
    this.software = isFallbackAdapter ?? /swiftshader|llvmpipe/i.test(`${description} ${architecture}`);
    const own = !this.software && vendor && vendor !== 'apple' && globalThis.navigator?.gpu?.wgslLanguageFeatures?.has(BYTES);
    this.features = new Set([
      ...(device.features as ReadonlySet<string>), ...(device.features.has(STANDARD) ? [MATRICES] : []), ...(own ? ['integer-dots'] : []), ...(vendor === 'nvidia' ? ['discrete'] : []),
    ]); // prettier-ignore
    void device.lost.then((info) => {
      this.lost ??= info.message || info.reason || 'unknown reason';
    });
    // The promise settles only after the calls that follow.
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

  /** Creates a buffer of at least `size` bytes, a multiple of 16. */
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

  /** Creates a buffer for tensors: for bindings, and for copies in both directions. */
  storage(size: number, label: string): GPUBuffer {
    return this.buffer(size, USAGE.STORAGE | USAGE.COPY_SRC | USAGE.COPY_DST, label);
  }

  /** Frees a buffer of `buffer()`; a second call is harmless. Submitted work can still use it. */
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

  /** Waits for the GPU and returns the first `bytes` of a buffer. */
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

  /** Maps a buffer for reading. Raises DeviceError with the reason if that fails. */
  async map(buffer: GPUBuffer): Promise<void> {
    try {
      await buffer.mapAsync(1);
    } catch (error) {
      // No other code unmaps it, so the device is lost, even if that is not reported yet.
      if ((error as Error).name === 'AbortError') this.lost ??= messageOf(error);
      throw this.lost ? this.lostError() : new DeviceError(`results cannot be read: ${(await this.#noMemory()) ?? messageOf(error)}`, { cause: error });
    }
  }

  /** Returns the buffer that could not be allocated, once. */
  async #noMemory(): Promise<string | undefined> {
    await this.#asked;
    const said = this.#refused;
    this.#refused = undefined;
    return said;
  }

  lostError(): DeviceError {
    return new DeviceError(`the WebGPU device is lost (${this.lost}); tensors on it are gone; the next run makes a new one, unless the device was yours`);
  }

  /** Calls `work` and raises the errors of its WebGPU calls, which would otherwise only be printed. */
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

  /** Returns the pipeline of a kernel's variant, compiled once per device. Raises ProgramError with the compiler's message. */
  pipeline(kernel: Kernel, variant: number): Promise<GPUComputePipeline> {
    const code = kernel.wgsl[variant]!;
    const bindings = bindingsOf(kernel);
    const key = `${bindings.join()}\n${code}`;
    let pipeline = this.#pipelines.get(key);
    if (!pipeline) {
      this.compiled += 1;
      pipeline = this.#compile(code, this.layout(bindings).pipeline, kernel.label);
      // A caller that awaits it gets the error. Nothing awaits a pipeline that is compiled ahead.
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

/** The bindings with the uniform block, for a pipeline. */
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

// As in onnxruntime-web, reading `device` returns a promise, and requests the device if there is none yet.
Object.defineProperty(flags, 'device', {
  configurable: true,
  enumerable: true,
  get: () => (current ??= request()),
  set: (device: GPUDevice | Promise<GPUDevice> | undefined) => {
    if (device && !('limits' in Object(device) || 'then' in Object(device))) throw wrongFlag('device', device);
    current = device && Promise.resolve(device);
  },
});

/**
 * Returns the device of env.webgpu, for sessions without one of their own. Requests a new one after a loss. Raises
 * DeviceError.
 */
export async function sharedGpu(): Promise<Gpu> {
  const asked = (current ??= request());
  try {
    const gpu = Gpu.of(await asked);
    // A loss is reported in its own microtask, which must run first.
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

// Adapters that have returned their device. An adapter returns only one.
const given = new WeakSet<GPUAdapter>();

/**
 * Returns the adapter of env.webgpu. Requests one if there is none that can still return a device. Raises DeviceError,
 * OptionError.
 */
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
  if (!gpu) throw new DeviceError(`there is no WebGPU here${(await reason((it) => it.withoutGpu())) ?? ''}`);
  const { forceFallbackAdapter } = flags;
  const powerPreference = preferenceOf(flags);
  const adapter = await gpu.requestAdapter({ powerPreference, forceFallbackAdapter } as GPURequestAdapterOptions);
  if (!adapter) throw new DeviceError(`there is WebGPU here, but no adapter${(await reason((it) => it.withoutAdapter())) ?? ''}`);
  return adapter;
}
