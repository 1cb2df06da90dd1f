// What becomes of files that a stranger may have made: node read_files.mjs FILE, of whose lines each is a name and bytes in base64.
// Opens each, and lays it out for several sizes, as a session does before it asks its device. Prints a line of JSON for each:
// {name, outcome}: `read`, the name of the error that says what is wrong, or `defect: ...` for one that nobody meant to throw.

import { readFileSync } from 'node:fs';
import { internals } from './internals.mjs';

const { Layouts, flowOf, isSaved, openPackage, openSaved } = await internals('testing');
const SIZES = [1, 3, 0, 64, 2 ** 31, 2n ** 62n];
const MEANT = new Set(['ProgramError', 'LimitError', 'InputError']);
/** A device that has everything. */
const has = {
  features: { has: () => true },
  limits: new Proxy({}, { get: (_, name) => (name.startsWith('min') ? 1 : Infinity) }),
  software: false,
  matrices: async () => [[16, 16, 16, 'f16', 'f32', 32], [8, 16, 32, 'u8', 'u32', 16]],
};

async function outcome(bytes) {
  const { program, weights } = await (isSaved(bytes) ? openSaved(bytes, 'the program', has) : openPackage(bytes, has));
  await weights(() => undefined);
  try {
    if (program.header) flowOf(program);
  } catch {
    return 'ProgramError'; // as `opened` of src/flow/flow.ts has it
  }
  const layouts = new Layouts(program);
  let refused;
  for (const size of SIZES) {
    try {
      layouts.layout(program.symbols.map(() => size));
    } catch (error) {
      if (!MEANT.has(error.name)) throw error;
      refused ??= error.name;
    }
  }
  return refused ?? 'read';
}

for (const line of readFileSync(process.argv[2], 'utf8').trim().split('\n')) {
  const [name, data] = line.split(' ');
  process.stdout.write(`${JSON.stringify({ start: name })}\n`);
  let found;
  try {
    found = await outcome(new Uint8Array(Buffer.from(data, 'base64')));
  } catch (error) {
    found = MEANT.has(error?.name) ? error.name : `defect: ${error?.stack ?? error}`.slice(0, 300);
  }
  process.stdout.write(`${JSON.stringify({ name, outcome: found })}\n`);
}
