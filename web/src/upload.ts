// Uploads weights to the device. In: pieces of the package as they arrive. Out: nothing. Each piece is written to its buffers and
// released.

import type { Gpu } from './device.js';
import { DeviceError } from './errors.js';
import type { Tell } from './found.js';
import type { Package } from './package.js';
import type { Weight } from './program.js';

/** Writes the weights into their buffers as they arrive. */
export async function upload(
  from: Package, gpu: Gpu, buffers: readonly GPUBuffer[], progress: Tell, signal: AbortSignal | undefined,
): Promise<void> {
  const order = from.program.weights.map((weight, k) => ({ weight, buffer: buffers[k]! }));
  let loaded = 0;
  let told = 0;
  const tell: Tell = (bytes) => {
    if (bytes > told) progress((told = bytes)); // fewer if a file is fetched again
  };
  await from.weights((offset, bytes) => {
    signal?.throwIfAborted();
    if (gpu.lost) throw new DeviceError(`the WebGPU device was lost while weights were uploaded (${gpu.lost})`);
    for (const { weight, buffer } of order) write(gpu, weight, buffer, offset, bytes);
    tell((loaded += bytes.length));
  }, tell);
}

function write(gpu: Gpu, weight: Weight, buffer: GPUBuffer, offset: number, bytes: Uint8Array): void {
  const first = Math.max(weight.offset, offset);
  const end = Math.min(weight.offset + weight.bytes, offset + bytes.length);
  if (first < end) gpu.write(buffer, first - weight.offset, bytes.subarray(first - offset, end - offset));
}
