// A Program as Python saves it, followed by its weights. Exports have their Programs in another form. This is for tests, which
// test both hosts with the same files.

import { text, wrongSize } from './files.js';
import { type Capabilities, type Package, fits } from './package.js';
import { FORMAT_VERSION, readProgram, wrongVersion } from './program.js';

const MAGIC = 'wgpuprog';

/** Whether bytes begin as a saved Program. */
export function isSaved(bytes: Uint8Array): boolean {
  return text(bytes.subarray(0, 8)) === MAGIC;
}

/** Opens a saved Program; `what` names it in messages. Raises ProgramError, LimitError. */
export async function openSaved(bytes: Uint8Array, what: string, has: Capabilities): Promise<Package> {
  if (bytes.byteLength < 16) throw wrongSize(what, bytes.byteLength, 16);
  const words = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const [version, length] = [words.getUint32(8, true), words.getUint32(12, true)];
  if (version !== FORMAT_VERSION) throw wrongVersion(what, version);
  const start = 16 + length;
  if (bytes.byteLength < start) throw wrongSize(what, bytes.byteLength, start);
  const program = readProgram(text(bytes.subarray(16, start)), what, start);
  const end = program.weights.reduce((most, it) => Math.max(most, it.offset + it.bytes), start);
  if (bytes.byteLength < end) throw wrongSize(what, bytes.byteLength, end);
  fits(program.target, has, what, program.target.matrices.length ? await has.matrices?.() : undefined);
  return {
    program,
    total: end - start,
    weights: async (take) => take(start, bytes.subarray(start, end)),
    cancel: () => undefined,
  };
}
