// What people may set about a session, as they write it for onnxruntime-web. In: SessionOptions. Out: `Options`, or an
// OptionError that names the option, the value and the domain. What has no effect here is accepted; docs/web.md lists it.

import type { InferenceSession, Tensor } from 'onnxruntime-common';
import { type DType, fitsGpu } from './dtypes.js';
import { OptionError, instead } from './errors.js';
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

type Rule = readonly [accepts: (value: unknown) => boolean, domain: string];

const oneOf = (...values: unknown[]): Rule => [(it) => values.includes(it), values.map((it) => JSON.stringify(it)).join(', ')];
const BOOLEAN: Rule = [(it) => [true, false, 'true', 'false', '0', '1', 0, 1].includes(it as never), 'true or false'];
const COUNT: Rule = [(it) => Number.isInteger(Number(it)) && Number(it) >= 0, 'a whole number'];
const TEXT: Rule = [(it) => typeof it === 'string', 'text'];
const OBJECT: Rule = [(it) => typeof it === 'object' && it !== null, 'an object'];
const CALLBACK: Rule = [(it) => typeof it === 'function', 'a function'];
const NAMES: Rule = [
  (it) => typeof it === 'string' || (Array.isArray(it) && it.every((name) => typeof name === 'string')),
  'a list of node names',
];
const LAYOUT = oneOf('NCHW', 'NHWC');
const CACHE_MODE = oneOf('disabled', 'lazyRelease', 'simple', 'bucket');

const PROVIDER: Record<string, Rule> = {
  name: TEXT,
  device: [(it) => typeof (it as GPUDevice | null)?.createBuffer === 'function', 'a GPUDevice'],
  onProgress: CALLBACK,
  signal: [(it) => it instanceof AbortSignal, 'an AbortSignal'],
  forceCpuNodeNames: NAMES,
  enableGraphCapture: BOOLEAN,
  // Without effect: kernels are compiled beforehand, 64-bit integers are always exact, buffers are always pooled.
  preferredLayout: LAYOUT,
  validationMode: oneOf('disabled', 'wgpuOnly', 'basic', 'full'),
  enableInt64: BOOLEAN,
  enableRobustness: BOOLEAN,
  enablePIXCapture: BOOLEAN,
  storageBufferCacheMode: CACHE_MODE,
  uniformBufferCacheMode: CACHE_MODE,
  queryResolveBufferCacheMode: CACHE_MODE,
  defaultBufferCacheMode: CACHE_MODE,
  powerPreference: oneOf('low-power', 'high-performance'),
  deviceId: COUNT,
};
const SESSION: Record<string, Rule> = {
  executionProviders: OBJECT,
  freeDimensionOverrides: OBJECT,
  enableGraphCapture: BOOLEAN,
  enableProfiling: BOOLEAN,
  preferredOutputLocation: [(it) => typeof it === 'string' || (typeof it === 'object' && it !== null), 'a location'],
  // Without effect: they are about the ONNX graph, threads, or memory of the CPU.
  preferredLayout: LAYOUT,
  graphOptimizationLevel: oneOf('disabled', 'basic', 'extended', 'layout', 'all'),
  executionMode: oneOf('sequential', 'parallel'),
  enableCpuMemArena: BOOLEAN,
  enableMemPattern: BOOLEAN,
  intraOpNumThreads: COUNT,
  interOpNumThreads: COUNT,
  optimizedModelFilePath: TEXT,
  profileFilePrefix: TEXT,
  logId: TEXT,
  logSeverityLevel: oneOf(0, 1, 2, 3, 4),
  logVerbosityLevel: COUNT,
  externalData: OBJECT,
  extra: OBJECT,
};

/** Reads the options of a session. Raises OptionError. */
export function readOptions(options: InferenceSession.SessionOptions): Options {
  const session = options as Record<string, unknown>;
  for (const [name, value] of Object.entries(session)) {
    const rule = SESSION[name];
    // No error, because it may be for another backend.
    if (!rule) console.warn(`there is no session option '${name}'${instead(name, Object.keys(SESSION))}`);
    else if (value !== undefined) check(name, value, rule);
  }
  const provider = providerOptions(options);
  const on = (value: unknown): boolean => value === true || value === 'true' || value === 1 || value === '1';
  const forced = provider['forceCpuNodeNames'];
  return {
    device: provider['device'] as GPUDevice | undefined,
    onProgress: provider['onProgress'] as Options['onProgress'],
    signal: provider['signal'] as AbortSignal | undefined,
    overrides: overridesOf(options.freeDimensionOverrides ?? {}),
    capture: on(options.enableGraphCapture) || on(provider['enableGraphCapture']),
    profiling: on(options.enableProfiling),
    forcedToCpu: typeof forced === 'string' ? forced.split(/[\n,]/).filter(Boolean) : ((forced ?? []) as string[]),
    location: options.preferredOutputLocation,
  };
}

/** Those of `{name: 'webgpu', ...}`, and over them those of `extra`. */
function providerOptions(options: InferenceSession.SessionOptions): Record<string, unknown> {
  const found: Record<string, unknown> = {};
  const set = (name: string, value: unknown, shown: string): void => {
    const key = Object.keys(PROVIDER).find((it) => it.toLowerCase() === name.toLowerCase());
    if (!key) throw new OptionError(`${shown}: there is no such option${instead(name, Object.keys(PROVIDER))}`);
    if (value === undefined) return;
    check(shown, value, PROVIDER[key]!);
    found[key] = value;
  };
  for (const provider of options.executionProviders ?? []) {
    if (typeof provider === 'string' || provider.name !== 'webgpu') continue;
    for (const [name, value] of Object.entries(provider)) set(name, value, `executionProviders: ${provider.name}.${name}`);
  }
  for (const [path, value] of flat(options.extra ?? {})) {
    const name = path.match(/^ep\.(?:webgpu|webgpuexecutionprovider)\.(.+)$/i)?.[1];
    if (name) set(name, value, `extra: ${path}`);
  }
  return found;
}

/** Nested options as paths, `{ep: {webgpu: {a: 1}}}` as `ep.webgpu.a`. */
function* flat(options: object, prefix = ''): Generator<[string, unknown]> {
  for (const [name, value] of Object.entries(options)) {
    if (typeof value === 'object' && value !== null && !Array.isArray(value)) yield* flat(value, `${prefix}${name}.`);
    else yield [prefix + name, value];
  }
}

function check(name: string, value: unknown, [accepts, domain]: Rule): void {
  if (!accepts(value)) throw new OptionError(`${name} is ${shown(value)}, it takes ${domain}`);
}

/** A value in an error, whatever it is: JSON has no promises, and raises for what goes round. */
function shown(value: unknown): string {
  return typeof value === 'string' ? JSON.stringify(value) : String(value);
}

function overridesOf(given: Readonly<Record<string, number>>): Map<string, number> {
  for (const [name, size] of Object.entries(given)) {
    if (!Number.isInteger(size) || size < 1) {
      throw new OptionError(`freeDimensionOverrides: '${name}' is ${shown(size)}, a size is a whole number from 1 on`);
    }
  }
  return new Map(Object.entries(given));
}

/** What can only be checked with the program at hand. Raises OptionError. */
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
    // transformers.js names the outputs that models of an architecture may have; where none is there, another model is meant.
    const names = Object.keys(options.location);
    if (names[0] && !names.some((it) => outputNames.includes(it))) {
      throw new OptionError(`preferredOutputLocation: there is no output '${names[0]}'; the outputs are ${outputNames.join(', ')}`);
    }
  }
}

/** Whether an output is to stay on the GPU. Raises OptionError for a location that there is not, or not for tensors of its type. */
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
