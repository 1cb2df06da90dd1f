// Tests whether an adapter's matrix units multiply correctly. Some drivers list units that give wrong products, and browsers
// differ in their syntax while the feature is experimental. In: a device. Out: its units that are correct. Comparisons are
// exact, because products of small integers are. Few adapters have units, so this is a separate file. It imports nothing of the
// library.

import type { Gpu } from './device.js';
import type { Kernel, MatrixUnit } from './format.js';

const FEATURE = 'chromium-experimental-subgroup-matrix' as GPUFeatureName;
const [COPY_SRC, STORAGE] = [4, 128]; // of GPUBufferUsage
const LARGEST = 8; // of operands, which repeat after 17
const operand = (at: number): number => ((at * 7) % 17) - LARGEST;

/**
 * The left operand, the right one in row-major order and the right one in column-major order follow each other. Results are
 * the sum of both products, and the same after a load as sums.
 */
export function kernelOf([m, n, k, type, sum, lanes]: MatrixUnit): Kernel {
  const [right, across, parts, fours] = [(m * k) / 8, (m * k + k * n) / 8, (m * k + 2 * k * n) / 8, (m * n) / 4];
  const eight = [0, 4].map((from) => `bitcast<vec2<u32>>(vec4<f16>(${[0, 1, 2, 3].map((it) => `operand(at + ${from + it}u)`).join(', ')}))`);
  return {
    label: 'matrix units',
    bindings: ['read_write'],
    uniforms: 0,
    wgsl: [`enable f16;
enable chromium_experimental_subgroup_matrix;
diagnostic(off, chromium.subgroup_matrix_uniformity);
@group(0) @binding(0) var<storage, read_write> results: array<vec4<${sum}>>;
alias matrix_left = subgroup_matrix_left<${type}, ${k}u, ${m}u>;
alias matrix_right = subgroup_matrix_right<${type}, ${n}u, ${k}u>;
alias matrix_sum = subgroup_matrix_result<${sum}, ${n}u, ${m}u>;
var<workgroup> matrix_memory: array<vec4<u32>, ${Math.max(parts, 2 * fours)}u>;
fn operand(at: u32) -> f16 { return f16(f32(at * 7u % 17u) - ${LARGEST}.0); }
@compute @workgroup_size(${lanes})
fn main(@builtin(local_invocation_index) lane: u32) {
  for (var i = lane; i < ${parts}u; i += ${lanes}u) {
    let at = 8u * i;
    matrix_memory[i] = vec4<u32>(${eight.join(', ')});
  }
  workgroupBarrier();
  let left = subgroupMatrixLoad<matrix_left, row_major>(&matrix_memory, 0u, ${k / 8}u);
  var sum: matrix_sum;
  sum = subgroupMatrixMultiplyAccumulate(left, subgroupMatrixLoad<matrix_right, row_major>(&matrix_memory, ${right}u, ${n / 8}u), sum);
  sum = subgroupMatrixMultiplyAccumulate(left, subgroupMatrixLoad<matrix_right, col_major>(&matrix_memory, ${across}u, ${k / 8}u), sum);
  workgroupBarrier();
  subgroupMatrixStore<row_major>(&matrix_memory, 0u, sum, ${n / 4}u);
  workgroupBarrier();
  sum = subgroupMatrixLoad<matrix_sum, row_major>(&matrix_memory, 0u, ${n / 4}u);
  subgroupMatrixStore<row_major>(&matrix_memory, ${fours}u, sum, ${n / 4}u);
  workgroupBarrier();
  for (var i = lane; i < ${2 * fours}u; i += ${lanes}u) { results[i] = bitcast<vec4<${sum}>>(matrix_memory[i]); }
}`],
  };
}

// Dawn for Node lists units only for the adapter. They are tested on the device anyway. These are the ones that exports need.
const UNLISTED = [{ M: 16, N: 16, K: 16, componentType: 'f16', resultComponentType: 'f32' }];

// Chromium's description, which the types of the specification do not have yet.
interface MatrixInfo {
  readonly subgroupMatrixConfigs?: Iterable<{ M: number; N: number; K: number; componentType: string; resultComponentType: string }>;
}
const found = new WeakMap<Gpu, Promise<readonly MatrixUnit[]>>();
/** The prefix of the experiment before the names of the standard. */
const EXPERIMENT = /chromium(_experimental_|\.)(?=subgroup_matrix)/g;

/**
 * Returns the units of a device that kernels use, if they compile in the kernels' syntax and give correct results. Tested
 * once. None if subgroups have several sizes, because a kernel for matrices relies on one. `begun` receives the units before
 * the test ends.
 */
export function unitsOf(gpu: Gpu, begun?: (tried: readonly MatrixUnit[]) => void): Promise<readonly MatrixUnit[]> {
  let units = found.get(gpu);
  if (!units) found.set(gpu, (units = tried(gpu, begun)));
  return units;
}

async function tried(gpu: Gpu, begun?: (tried: readonly MatrixUnit[]) => void): Promise<readonly MatrixUnit[]> {
  const { adapterInfo, features } = gpu.device;
  const { subgroupMinSize, subgroupMaxSize } = adapterInfo ?? {};
  if (!subgroupMinSize || subgroupMinSize !== subgroupMaxSize) return [];
  if (!features.has(FEATURE)) gpu.spelled = (code) => code.replace(EXPERIMENT, '');
  const listed = [...((adapterInfo as MatrixInfo).subgroupMatrixConfigs ?? [])];
  const used = (listed.length ? listed : UNLISTED)
    .map((it): MatrixUnit => [it.M, it.N, it.K, it.componentType, it.resultComponentType, subgroupMinSize])
    .filter(isUsed);
  const trials = used.map((it) => isRight(gpu, it).catch(() => false)); // their kernels compile first
  begun?.(used);
  const right = await Promise.all(trials);
  return used.filter((_, k) => right[k]);
}

function isUsed([m, n, k, type, sum]: MatrixUnit): boolean {
  return type === 'f16' && sum === 'f32' && !(m % 8 || n % 8 || k % 8);
}

async function isRight(gpu: Gpu, unit: MatrixUnit): Promise<boolean> {
  const [m, n] = unit;
  const kernel = kernelOf(unit);
  const pipeline = await gpu.pipeline(kernel, 0);
  const bytes = 8 * m * n;
  const results = gpu.buffer(bytes, STORAGE | COPY_SRC, kernel.label);
  try {
    await gpu.guarded(kernel.label, () => {
      const encoder = gpu.device.createCommandEncoder();
      const pass = encoder.beginComputePass();
      pass.setPipeline(pipeline);
      pass.setBindGroup(0, gpu.device.createBindGroup({ layout: gpu.layout(kernel.bindings).group, entries: [{ binding: 0, resource: { buffer: results } }] }));
      pass.dispatchWorkgroups(1);
      pass.end();
      gpu.queue.submit([encoder.finish()]);
    });
    return new Float32Array(await gpu.read(results, bytes)).every((it, at) => it === expected(unit, at % (m * n)));
  } finally {
    gpu.free(results);
  }
}

function expected([m, n, k]: MatrixUnit, at: number): number {
  const [row, column] = [Math.floor(at / n), at % n];
  const [right, across] = [m * k, m * k + k * n];
  let sum = 0;
  for (let i = 0; i < k; i++) sum += operand(row * k + i) * (operand(right + i * n + column) + operand(across + column * k + i));
  return sum;
}
