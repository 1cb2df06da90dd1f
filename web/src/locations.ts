// Where tensors of onnxruntime-common lie, and which of these places runs can use.

import { InputError } from './errors.js';

/** Whether a tensor is in memory, or is to be. */
export const liesInMemory = ({ location }: { readonly location: string }): boolean => /^cpu(-pinned)?$/.test(location);

/** A tensor that is where no kernel reaches it: a texture, a tensor of WebNN, or nowhere, because it was disposed of. */
export function unreachable(what: string, location: string): InputError {
  const way = location === 'none' ? 'disposed of' : `at '${location}': pass a tensor of its getData()`;
  return new InputError(`${what} is ${way}`);
}
