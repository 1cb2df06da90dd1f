// The locations of onnxruntime-common's tensors, and which of them runs can use.

import { InputError } from './errors.js';

/** Whether a tensor is in memory, or is to be. */
export const liesInMemory = ({ location }: { readonly location: string }): boolean => /^cpu(-pinned)?$/.test(location);

/** Makes the error for a tensor that kernels cannot reach: a texture, a tensor of WebNN, or a disposed one. */
export function unreachable(what: string, location: string): InputError {
  const way = location === 'none' ? 'disposed of' : `at '${location}': pass a tensor of its getData()`;
  return new InputError(`${what} is ${way}`);
}
