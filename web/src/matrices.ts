// Whether matrix units multiply as an adapter says: drivers list some that give wrong products, and browsers spell them in several
// ways while they are an experiment. In: a device and units that a Program needs. Out: whether all of them are right. What is compared
// is exact: products of small integers. Few adapters have units, so this is a file of its own, which imports nothing that the library has.

import type { Gpu } from './device.js';
import type { Kernel, MatrixUnit } from './format.js';

const [COPY_SRC, STORAGE] = [4, 128]; // of GPUBufferUsage
const LARGEST = 8; // of operands, by 17 of which they repeat
const operand = (at: number): number => ((at * 7) % 17) - LARGEST;

/** Left, right in rows and right across follow each other; results are sums of both products, and the same loaded as sums again. */
export function kernelOf([m, n, k, type, sum, lanes]: MatrixUnit): Kernel {
  const [right, across, parts, fours] = [(m * k) / 8, (m * k + k * n) / 8, (m * k + 2 * k * n) / 8, (m * n) / 4];
  const eight = [0, 4].map((from) => `bitcast<vec2<u32>>(vec4<f16>(${[0, 1, 2, 3].map((it) => `operand(at + ${from + it}u)`).join(', ')}))`);
  return {
    label: 'whether matrix units are right',
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

const tried = new WeakMap<Gpu, Map<string, Promise<boolean>>>();

/** Whether the device compiles all of them as kernels spell them, and they give what they should; each is tried once. */
export async function multiplies(gpu: Gpu, units: readonly MatrixUnit[]): Promise<boolean> {
  const all = tried.get(gpu) ?? new Map<string, Promise<boolean>>();
  tried.set(gpu, all);
  const found = units.map((it) => {
    const key = `${it}`;
    if (!all.has(key)) all.set(key, isRight(gpu, it).catch(() => false));
    return all.get(key);
  });
  return (await Promise.all(found)).every(Boolean);
}

async function isRight(gpu: Gpu, unit: MatrixUnit): Promise<boolean> {
  const [m, n, k, type, sum] = unit;
  if (type !== 'f16' || sum !== 'f32' || m % 8 || n % 8 || k % 8) return false; // no kernel uses it
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
