// Transposes weights on the device that a Program reads in another order than the model has them, because an export has each
// once. In: weights and their buffers. Out: nothing; the buffers are filled. Few Programs have such weights, so this is a
// separate file. It imports nothing of the library.

import type { Gpu } from './device.js';
import type { Kernel, Weight } from './format.js';

const [COPY_DST, UNIFORM] = [8, 64]; // of GPUBufferUsage
const INVOCATIONS = 64;
const MOST_WORKGROUPS = 65535; // along an axis

/**
 * Computes a word with elements of `bits` bits, of matrices of `rows` x `columns`. `row` is the number of words of the
 * workgroups along x.
 */
const KERNEL: Kernel = {
  label: 'transposed weights',
  bindings: ['read', 'read_write'],
  uniforms: 4,
  wgsl: [`struct Matrices { rows: u32, columns: u32, bits: u32, row: u32 }
@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read_write> y: array<u32>;
@group(0) @binding(2) var<uniform> all: Matrices;
@compute @workgroup_size(${INVOCATIONS})
fn main(@builtin(global_invocation_id) id: vec3u) {
  let place = id.y * all.row + id.x;
  if (place >= arrayLength(&y)) { return; }
  let each = 32u / all.bits;
  var word = 0u;
  for (var k = 0u; k < each; k++) {
    let element = place * each + k;
    let within = element % (all.rows * all.columns);
    let source = element - within + within % all.rows * all.columns + within / all.rows;
    word |= extractBits(x[source / each], source % each * all.bits, all.bits) << (k * all.bits);
  }
  y[place] = word;
}`],
};

/** Fills the buffers of weights. `uploaded` writes them in the model's order. Raises DeviceError, ProgramError. */
export async function transposed(
  gpu: Gpu, weights: readonly Weight[], buffers: readonly GPUBuffer[], uploaded: (into: readonly GPUBuffer[]) => Promise<void>,
): Promise<void> {
  const pipeline = gpu.pipeline(KERNEL, 0);
  pipeline.catch(() => undefined); // raised when it is awaited
  const own: GPUBuffer[] = [];
  const made = (buffer: GPUBuffer): GPUBuffer => (own.push(buffer), buffer);
  try {
    const given = await gpu.guarded('the weights do not fit on the device', () =>
      weights.map((it, k) => (it.matrices ? made(gpu.storage(it.bytes, `the weight '${it.name}'`)) : buffers[k]!)),
    );
    await uploaded(given);
    const compiled = await pipeline;
    const { group } = gpu.layout([...KERNEL.bindings, 'uniform']);
    const encoder = gpu.device.createCommandEncoder();
    const pass = encoder.beginComputePass();
    pass.setPipeline(compiled);
    weights.forEach(({ matrices, bytes }, k) => {
      if (!matrices || !bytes) return;
      const workgroups = Math.ceil(bytes / 4 / INVOCATIONS);
      const along = Math.min(workgroups, MOST_WORKGROUPS);
      const uniforms = made(gpu.buffer(16, UNIFORM | COPY_DST, KERNEL.label));
      gpu.write(uniforms, 0, new Uint8Array(Uint32Array.of(...matrices, along * INVOCATIONS).buffer));
      const entries = [given[k]!, buffers[k]!, uniforms].map((buffer, binding) => ({ binding, resource: { buffer } }));
      pass.setBindGroup(0, gpu.device.createBindGroup({ layout: group, entries }));
      pass.dispatchWorkgroups(along, Math.ceil(workgroups / along));
    });
    pass.end();
    gpu.queue.submit([encoder.finish()]);
  } finally {
    for (const it of own) gpu.free(it);
  }
}
