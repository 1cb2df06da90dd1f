// Models that tests/web/models.py exported into $WGPU_WEB_FIXTURES, and a server for that folder.

import assert from 'node:assert/strict';
import { readFileSync, readdirSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { extname } from 'node:path';

export const folder = process.env.WGPU_WEB_FIXTURES;
assert(folder, 'WGPU_WEB_FIXTURES names no folder: run these tests through pytest, tests/web');

export const bytesOf = (file) => new Uint8Array(readFileSync(`${folder}/${file}`));
/** The names of the files of a folder. */
export const listed = (name) => readdirSync(`${folder}/${name}`);

const ARRAYS = {
  float32: Float32Array, float64: Float64Array, float16: globalThis.Float16Array ?? Uint16Array, int8: Int8Array, uint8: Uint8Array,
  int16: Int16Array, uint16: Uint16Array, int32: Int32Array, uint32: Uint32Array, int64: BigInt64Array, uint64: BigUint64Array,
  bool: Uint8Array, int4: Uint8Array, uint4: Uint8Array,
};
/** Tensors that carry the bits of types that onnxruntime-common does not have. */
const CARRIERS = { bfloat16: 'uint16', float8e4m3fn: 'uint8', float8e5m2: 'uint8' };

/** A tensor of the description in a NAME.json. */
export function tensor(ort, { type, dims, hex }) {
  const bytes = new Uint8Array(Buffer.from(hex, 'hex'));
  const carrier = CARRIERS[type] ?? type;
  return new ort.Tensor(carrier, new ARRAYS[carrier](bytes.buffer), dims);
}

/** The samples of a model: tensors by name. */
export function samples(ort, name) {
  const tensors = (described) => Object.fromEntries(Object.entries(described).map(([k, it]) => [k, tensor(ort, it)]));
  const rows = JSON.parse(readFileSync(`${folder}/${name}.json`, 'utf8'));
  return rows.map(({ inputs, outputs }) => ({ feeds: tensors(inputs), wanted: tensors(outputs) }));
}

function half(bits) {
  const [sign, exponent, fraction] = [bits >> 15 ? -1 : 1, (bits >> 10) & 31, bits & 1023];
  return exponent ? sign * 2 ** (exponent - 15) * (1 + fraction / 1024) : sign * 2 ** -14 * (fraction / 1024);
}

/** Raises unless a tensor has the type, the shape and, within rounding, the elements of another. */
export async function assertSame(found, wanted) {
  assert.equal(found.type, wanted.type);
  assert.deepEqual([...found.dims], [...wanted.dims]);
  const [data, expected] = [await found.getData(), wanted.data];
  assert.equal(data.constructor, expected.constructor);
  const exact = !wanted.type.startsWith('float');
  const value = (it) => (expected instanceof Uint16Array ? half(it) : it);
  for (let k = 0; k < expected.length; k++) {
    if (exact) assert.equal(data[k], expected[k], `element ${k}`);
    else {
      const [a, b] = [value(data[k]), value(expected[k])];
      assert(Math.abs(a - b) <= (wanted.type === 'float16' ? 4e-3 : 2e-5) * Math.max(1, Math.abs(b)), `element ${k}: ${a}, not ${b}`);
    }
  }
}

const TYPES = { '.js': 'text/javascript', '.mjs': 'text/javascript', '.json': 'application/json', '.html': 'text/html', '.wasm': 'application/wasm' };

/**
 * Serves the fixtures at / and each of `mounts`, {'/path/': folder}. `log` lists the paths that were asked for, `queries` what stood behind them; `intercept(path)` may
 * give, or promise, {status}, {headers}, {body} or {change} instead, a function of the text, and with {broken} an answer that breaks
 * off, after its body when that promise is resolved; `headers` go with every answer.
 */
export async function serve({ mounts = {}, headers = {} } = {}) {
  const state = { log: [], queries: [], intercept: () => undefined };
  const server = createServer(async (request, response) => {
    const { pathname, search } = new URL(request.url, 'http://x');
    const path = decodeURIComponent(pathname);
    state.log.push(path);
    state.queries.push(search);
    const mount = Object.keys(mounts).find((it) => path.startsWith(it));
    const file = mount ? mounts[mount] + path.slice(mount.length) : folder + path;
    try {
      const instead = await state.intercept(path, request);
      let body = instead?.body ?? (await readFile(file));
      if (instead?.change) body = instead.change(body.toString());
      if (instead?.broken && !body.length) return void request.socket.destroy();
      response.writeHead(instead?.status ?? 200, { 'content-type': TYPES[extname(path)] ?? 'application/octet-stream', ...headers, ...instead?.headers });
      if (instead?.broken) {
        response.write(body);
        await instead.broken;
        return void request.socket.destroy();
      }
      response.end(body);
    } catch {
      response.writeHead(404).end();
    }
  });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  state.url = `http://127.0.0.1:${server.address().port}/`;
  state.close = () => server.close();
  return state;
}
