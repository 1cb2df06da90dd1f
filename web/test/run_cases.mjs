// Runs exported Programs on given bytes: node run_cases.mjs CASES.json. Each case is {program, inputs: [{file, dims}], output,
// runs}; output k of the last of so many runs is written to OUTPUT.k. Prints one line of JSON for each: {program, outputs: [{dims}]} or {program, error}.

import { readFileSync, writeFileSync } from 'node:fs';
import { internals, leave, useDawn } from './internals.mjs';

await useDawn();
const { Executable, openSaved, sharedGpu } = await internals('testing');
const gpu = await sharedGpu();
for (const { program, inputs, output, runs } of JSON.parse(readFileSync(process.argv[2], 'utf8'))) {
  console.log(JSON.stringify({ start: program }));
  try {
    const found = await openSaved(new Uint8Array(readFileSync(program)), program, gpu);
    const executable = await Executable.create(found, gpu);
    const feeds = inputs.map(({ file, dims }) => ({ dims, bytes: new Uint8Array(readFileSync(file)) }));
    let results;
    for (let run = 0; run < runs; run++) results = await executable.run(feeds, found.program.outputs.map(() => 'cpu'));
    results.forEach(({ bytes }, k) => writeFileSync(`${output}.${k}`, new Uint8Array(bytes)));
    await executable.release();
    console.log(JSON.stringify({ program, outputs: results.map(({ dims }) => ({ dims })) }));
  } catch (error) {
    console.log(JSON.stringify({ program, error: `${error.name}: ${error.message}` }));
  }
}
leave();
