// The options of a session, as written for onnxruntime-web. In: SessionOptions. Out: `Options`, or an OptionError that names
// the option, the value and the domain. Options without effect here are accepted; docs/web.md lists them. `settings` checks all
// but the usual ones.

import type { InferenceSession, Tensor } from 'onnxruntime-common';
import { type DType, fitsGpu } from './dtypes.js';
import * as errors from './errors.js';
import { OptionError } from './errors.js';
import { liesInMemory } from './locations.js';
import type { Program } from './program.js';
import type { Progress } from './provider.js';

export interface Options {
  readonly device: GPUDevice | undefined;
  readonly onProgress: ((progress: Progress) => void) | undefined;
  readonly signal: AbortSignal | undefined;
  readonly overrides: ReadonlyMap<string, number>;
  readonly capture: boolean;
  readonly profiling: boolean;
  readonly forcedToCpu: readonly string[];
  readonly location: InferenceSession.SessionOptions['preferredOutputLocation'];
}

type Rules = Record<string, (value: any) => boolean>;

const isObject = (it: unknown): boolean => typeof it === 'object' && it !== null;
const isSize = (it: unknown): boolean => Number.isInteger(it) && Number(it) > 0;
/** The options that most pages set, with checks of their values. */
const USUAL: Rules = {
  executionProviders: (all) => Array.isArray(all) && all.every((it) => typeof it === 'string' || areUsual(PROVIDER, it)),
  freeDimensionOverrides: (it) => isObject(it) && Object.values(it).every(isSize),
  enableGraphCapture: (it) => typeof it === 'boolean',
  preferredOutputLocation: (it) => typeof it === 'string' || isObject(it),
};
const PROVIDER: Rules = {
  name: (it) => it === 'webgpu',
  device: (it) => typeof it?.createBuffer === 'function',
  onProgress: (it) => typeof it === 'function',
  signal: (it) => it instanceof AbortSignal,
};
const areUsual = (rules: Rules, options: object): boolean =>
  Object.entries(options).every(([name, value]) => value === undefined || rules[name]?.(value));

/** Reads the options of a session. Raises OptionError. */
export async function readOptions(options: InferenceSession.SessionOptions): Promise<Options> {
  const provider: Record<string, unknown> = areUsual(USUAL, options)
    ? Object.assign({}, ...(options.executionProviders ?? []))
    : (await import('./settings.js')).checked(options, errors);
  const on = (value: unknown): boolean => value === true || value === 'true' || value === 1 || value === '1';
  const forced = provider['forceCpuNodeNames'];
  return {
    device: provider['device'] as GPUDevice | undefined,
    onProgress: provider['onProgress'] as Options['onProgress'],
    signal: provider['signal'] as AbortSignal | undefined,
    overrides: new Map(Object.entries(options.freeDimensionOverrides ?? {})),
    capture: on(options.enableGraphCapture) || on(provider['enableGraphCapture']),
    profiling: on(options.enableProfiling),
    forcedToCpu: typeof forced === 'string' ? forced.split(/[\n,]/).filter(Boolean) : ((forced ?? []) as string[]),
    location: options.preferredOutputLocation,
  };
}

/** Checks that need the program. Raises OptionError. */
export function checkAgainst(program: Program, options: Options, outputNames: readonly string[]): void {
  const free = program.symbols.filter((it) => !it.isElement).map((it) => it.name);
  for (const name of options.overrides.keys()) {
    if (free.includes(name)) continue;
    throw new OptionError(
      `freeDimensionOverrides: no input has a free dimension '${name}'; the model has ${free.join(', ') || 'none'}`,
    );
  }
  const nodes = new Set(program.dispatches.flatMap((it) => it.origin));
  const forced = options.forcedToCpu.find((it) => nodes.has(it));
  if (forced) {
    throw new OptionError(`forceCpuNodeNames: '${forced}' is compiled for the GPU and has nothing to run it on the CPU`);
  }
  if (typeof options.location === 'object') {
    // transformers.js names the possible outputs of an architecture. If none exists, it is another model.
    const names = Object.keys(options.location);
    if (names[0] && !names.some((it) => outputNames.includes(it))) {
      throw new OptionError(`preferredOutputLocation: there is no output '${names[0]}'; the outputs are ${outputNames.join(', ')}`);
    }
  }
}

/** Whether an output stays on the GPU. Raises OptionError for an unknown location, or one that has no tensors of its type. */
export function staysOnGpu(options: Options, output: string, dtype: DType): boolean {
  const location: Tensor.DataLocation = (typeof options.location === 'object' ? options.location[output] : options.location) ?? 'cpu';
  if (location === 'gpu-buffer' && !fitsGpu(dtype)) {
    throw new OptionError(
      `preferredOutputLocation of '${output}' is 'gpu-buffer', where onnxruntime-common has no tensors of ${dtype.name}: choose by output, with 'cpu' for this one`,
    );
  }
  if (location === 'gpu-buffer') return true;
  if (liesInMemory({ location })) return false;
  throw new OptionError(`preferredOutputLocation of '${output}' is '${String(location)}', it takes 'cpu' or 'gpu-buffer'`);
}
