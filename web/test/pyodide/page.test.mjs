// Python in the browser: the wheel for Pyodide is installed with micropip, without a network, and runs exported models on WebGPU;
// with no numpy about. $WGPU_PYODIDE_WHEELS has our wheel, and those of micropip and packaging.

import assert from 'node:assert/strict';
import { readFileSync, readdirSync } from 'node:fs';
import { before, test } from 'node:test';
import { loadPyodide } from 'pyodide';
import { bytesOf, folder } from '../fixtures.mjs';
import { useDawn } from '../internals.mjs';

const wheels = process.env.WGPU_PYODIDE_WHEELS;
let python;
before(async () => {
  python = await loadPyodide(); // which looks at navigator, so before it is ours
  await useDawn();
  python.FS.mkdir('/wheels');
  for (const name of readdirSync(wheels)) {
    const bytes = new Uint8Array(readFileSync(`${wheels}/${name}`));
    if (name.startsWith('onnxruntime_ep_wgpu')) python.FS.writeFile(`/wheels/${name}`, bytes);
    else python.unpackArchive(bytes, 'wheel');
  }
  const fetched = globalThis.fetch;
  globalThis.fetch = (address, ...rest) => (String(address).startsWith('http') ? assert.fail(`${address} is fetched`) : fetched(address, ...rest));
  await python.runPythonAsync(`
import micropip, os
await micropip.install("emfs:/wheels/" + os.listdir("/wheels")[0])
from onnxruntime_ep_wgpu import errors
from onnxruntime_ep_wgpu.web import InferenceSession, Tensor, support
`);
  python.globals.set('read', (name) => bytesOf(name));
  python.globals.set('samples', (name) => readFileSync(`${folder}/${name}.json`, 'utf8'));
});
const run = async (code) => JSON.parse(await python.runPythonAsync(code));

test('results are those of the CPU provider, whatever their types', async () => {
  const differ = await run(`
import json
assert (await support())[0]
def tensors(described):
    return {name: Tensor(it["type"], tuple(it["dims"]), bytes.fromhex(it["hex"])) for name, it in described.items()}
differ = []
for model in ("tiny", "types", "half", "elements"):
    session = await InferenceSession.create(read(model + ".wgpu").to_bytes())
    for sample in json.loads(samples(model)):
        wanted = tensors(sample["outputs"])
        names = [it.name for it in session.get_outputs()]
        assert sorted(names) == sorted(wanted)
        for name, found in zip(names, await session.run(None, tensors(sample["inputs"]))):
            assert (found.type, found.dims) == (wanted[name].type, wanted[name].dims), name
            pairs = zip(found.elements(), wanted[name].elements())
            differ += [(model, name, a, b) for a, b in pairs if abs(a - b) > (4e-3 if found.type == "float16" else 2e-5) * max(1, abs(b))]
    await session.release()
json.dumps(differ)
`);
  assert.deepEqual(differ, []);
});

test('names, types and shapes; outputs by name; a fixed dimension', async () => {
  const [inputs, outputs, types] = await run(`
session = await InferenceSession.create(read("tiny.wgpu").to_bytes(), freeDimensionOverrides={"batch": 2})
inputs, outputs = [[it.name, it.type, it.shape] for it in session.get_inputs()], [[it.name, it.type, it.shape] for it in session.get_outputs()]
await session.release()
session = await InferenceSession.create(read("types.wgpu").to_bytes())
found = await session.run(["negative", "sum"], {"a": Tensor.of("int64", [2], [-5, 2**52 + 1])})
await session.release()
json.dumps([inputs, outputs, [[it.type, it.elements()] for it in found]])
`);
  assert.deepEqual(inputs, [['x', 'float32', [2, 3, 'height', 'width']]]);
  assert.deepEqual(outputs, [['y', 'float32', [2, 4]]]);
  assert.deepEqual(types, [['bool', [true, false]], ['int64', [2 ** 40 - 4, 2 ** 52 + 2 + 2 ** 40]]]);
});

test('errors are exceptions of the package', async () => {
  const told = await run(`
told = []
async def fails(coroutine):
    try:
        await coroutine
    except errors.WgpuEpError as error:
        told.append([type(error).__name__, str(error)])
await fails(InferenceSession.create(b"nothing"))
await fails(InferenceSession.create(read("tiny.wgpu").to_bytes(), executionMode="quick"))
session = await InferenceSession.create(read("types.wgpu").to_bytes())
await fails(session.run(None, {"a": Tensor.of("int32", [1], [1])}))
await fails(session.run(None, {"a": [1, 2]}))
await session.release()
await fails(session.run(None, {"a": Tensor.of("int64", [1], [1])}))
json.dumps(told)
`);
  const patterns = [/ProgramError.*not an exported model/, /OptionError.*executionMode is "quick"/, /InputError.*'a' is int32/, /InputError.*without numpy, pass a Tensor/, /InputError.*released/];
  assert.equal(told.length, patterns.length);
  patterns.forEach((it, k) => assert.match(told[k].join().slice(0, 300), it));
});
