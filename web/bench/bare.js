// What a run costs where there is no library: WebGPU itself, called for as many dispatches as a model has, in one pass.

/** A function that encodes and submits `dispatches` products of 4 x 4, one after another, each with a bind group of its own. */
export function bare(device, dispatches) {
  const buffer = () => device.createBuffer({ size: 64, usage: GPUBufferUsage.STORAGE });
  const code = `
    @group(0) @binding(0) var<storage, read> a: array<f32>;
    @group(0) @binding(1) var<storage, read> b: array<f32>;
    @group(0) @binding(2) var<storage, read_write> y: array<f32>;
    @compute @workgroup_size(16) fn main(@builtin(local_invocation_index) i: u32) {
      var sum = 0f;
      for (var k = 0u; k < 4u; k++) { sum += a[i / 4u * 4u + k] * b[k * 4u + i % 4u]; }
      y[i] = sum;
    }`;
  const pipeline = device.createComputePipeline({ layout: 'auto', compute: { module: device.createShaderModule({ code }) } });
  const layout = pipeline.getBindGroupLayout(0);
  const [weights, ...values] = Array.from({ length: dispatches + 2 }, buffer);
  const groups = Array.from({ length: dispatches }, (_, k) => {
    const resources = [values[k], weights, values[k + 1]];
    return device.createBindGroup({ layout, entries: resources.map((it, binding) => ({ binding, resource: { buffer: it } })) });
  });
  return () => {
    const encoder = device.createCommandEncoder();
    const pass = encoder.beginComputePass();
    pass.setPipeline(pipeline);
    for (const group of groups) {
      pass.setBindGroup(0, group);
      pass.dispatchWorkgroups(1);
    }
    pass.end();
    device.queue.submit([encoder.finish()]);
  };
}
