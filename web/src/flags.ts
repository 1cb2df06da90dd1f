// What env.webgpu asks of runs, in a page and in its worker.

import { OptionError } from './errors.js';

interface Flags {
  readonly profiling?: { readonly mode?: string };
  /** As it was called before. */
  readonly profilingMode?: string;
}

/** Whether dispatches are measured. Raises OptionError. */
export function isProfiling({ profiling, profilingMode }: Flags): boolean {
  const mode = profiling?.mode ?? profilingMode ?? 'off';
  if (mode !== 'default' && mode !== 'off') throw new OptionError(`env.webgpu.profiling.mode is '${mode}', it takes 'default' or 'off'`);
  return mode === 'default';
}
