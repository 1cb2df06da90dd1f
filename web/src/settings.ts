// Options of a session that few pages set, or that are wrong, and their domains. In: SessionOptions. Out: those of the
// provider, or an OptionError that names the option, the value and the domain. Fetched if a session has other options than the
// usual ones. It imports nothing of the library.

import type { InferenceSession } from 'onnxruntime-common';
import type * as errors from './errors.js';
import { instead } from './instead.js';

type Errors = typeof errors;
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
  // Without effect: kernels are compiled in advance, 64-bit integers are always exact, buffers are always pooled.
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
  // Without effect: they concern the ONNX graph, threads, or memory of the CPU.
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

/** Checks all options and returns those of the provider. Raises OptionError. */
export function checked(options: InferenceSession.SessionOptions, { OptionError }: Errors): Record<string, unknown> {
  for (const [name, value] of Object.entries(options)) {
    const rule = SESSION[name];
    // Not an error, because it may be for another backend.
    if (!rule) console.warn(`there is no session option '${name}'${instead(name, Object.keys(SESSION))}`);
    else if (value !== undefined) check(name, value, rule, OptionError);
  }
  const provider = providerOptions(options, OptionError);
  for (const [name, size] of Object.entries(options.freeDimensionOverrides ?? {})) {
    if (!Number.isInteger(size) || size < 1) {
      throw new OptionError(`freeDimensionOverrides: '${name}' is ${shown(size)}, a size is a whole number from 1 on`);
    }
  }
  return provider;
}

/** Returns the options of `{name: 'webgpu', ...}`; those of `extra` take precedence. */
function providerOptions(options: InferenceSession.SessionOptions, OptionError: Errors['OptionError']): Record<string, unknown> {
  const found: Record<string, unknown> = {};
  const set = (name: string, value: unknown, shown: string): void => {
    const key = Object.keys(PROVIDER).find((it) => it.toLowerCase() === name.toLowerCase());
    if (!key) throw new OptionError(`${shown}: there is no such option${instead(name, Object.keys(PROVIDER))}`);
    if (value === undefined) return;
    check(shown, value, PROVIDER[key]!, OptionError);
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

/** Flattens nested options to paths: `{ep: {webgpu: {a: 1}}}` becomes `ep.webgpu.a`. */
function* flat(options: object, prefix = ''): Generator<[string, unknown]> {
  for (const [name, value] of Object.entries(options)) {
    if (typeof value === 'object' && value !== null && !Array.isArray(value)) yield* flat(value, `${prefix}${name}.`);
    else yield [prefix + name, value];
  }
}

function check(name: string, value: unknown, [accepts, domain]: Rule, OptionError: Errors['OptionError']): void {
  if (!accepts(value)) throw new OptionError(`${name} is ${shown(value)}, it takes ${domain}`);
}

/** Formats any value for an error. JSON has no promises, and raises for cycles. */
function shown(value: unknown): string {
  return typeof value === 'string' ? JSON.stringify(value) : String(value);
}
