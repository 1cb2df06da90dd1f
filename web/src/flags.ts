// The settings of runs in env.webgpu, for a page and its worker.

import { OptionError } from './errors.js';

interface Flags {
  readonly profiling?: { readonly mode?: string };
  /** The earlier name. */
  readonly profilingMode?: string;
  readonly powerPreference?: unknown;
}

/** Returns the preference for requesting adapters; undefined for none. Raises OptionError. */
export function preferenceOf({ powerPreference: it }: Flags): GPUPowerPreference | undefined {
  if (!it) return undefined;
  if (it === 'low-power' || it === 'high-performance') return it;
  throw new OptionError(`env.webgpu.powerPreference is '${String(it)}', it takes 'low-power' or 'high-performance'`);
}

/** Whether dispatches are measured. Raises OptionError. */
export function isProfiling({ profiling, profilingMode }: Flags): boolean {
  const mode = profiling?.mode ?? profilingMode ?? 'off';
  if (mode !== 'default' && mode !== 'off') throw new OptionError(`env.webgpu.profiling.mode is '${mode}', it takes 'default' or 'off'`);
  return mode === 'default';
}
