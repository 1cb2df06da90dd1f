// One library with one model: how long until the first result, how long a run takes then, and how many bytes the library has.

/** Numbers that look random and are the same everywhere, from -1 to 1. */
function numbers(count, seed) {
  let state = (seed + 1) * 2654435761;
  return Float32Array.from({ length: count }, () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 31 - 1;
  });
}

const LIBRARIES = {
  ours: () => import('onnxruntime-ep-wgpu-web'),
  webgpu: (base) => import(/* @vite-ignore */ `${base}ort/ort.webgpu.bundle.min.mjs`),
  wasm: (base) => import(/* @vite-ignore */ `${base}ort/ort.wasm.bundle.min.mjs`),
};

onmessage = async ({ data: { engine, model, iterations, base } }) => {
  try {
    const begin = performance.now();
    const loaded = await LIBRARIES[engine](base);
    const ort = loaded.InferenceSession ? loaded : loaded.default;
    if (engine !== 'ours') ort.env.wasm.wasmPaths = `${base}ort/`;
    const session = await ort.InferenceSession.create(`${base}models/bench/${model.name}.onnx`, { executionProviders: [engine === 'wasm' ? 'wasm' : 'webgpu'] });
    const feeds = Object.fromEntries(Object.entries(model.inputs).map(([name, { type, dims, data, seed }]) => {
      const count = dims.reduce((a, b) => a * b, 1);
      return [name, new ort.Tensor(type, type === 'int64' ? BigInt64Array.from(data, BigInt) : numbers(count, seed), dims)];
    }));
    const [output] = session.outputNames;
    const result = (await session.run(feeds))[output];
    const first = performance.now() - begin;
    const times = [];
    for (let k = 0; k <= iterations; k++) {
      postMessage({ run: k });
      const start = performance.now();
      await session.run(feeds);
      if (k) times.push(performance.now() - start);
    }
    const bytes = performance.getEntriesByType('resource').filter((it) => /\.(m?js|wasm)$/.test(it.name)).reduce((sum, it) => sum + it.decodedBodySize, 0);
    // The page compares what the libraries give.
    postMessage({ first, steady: times.reduce((a, b) => a + b, 0) / times.length, bytes, sample: Array.from(result.data.slice(0, 1000), Number) });
  } catch (error) {
    postMessage({ error: error.message });
  }
};
