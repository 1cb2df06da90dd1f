// The command `wgpu-ep` of the Python package, wherever it is installed. In: its arguments. Out: how it ended. Invariants: the
// arguments and the exit code are passed on unchanged, and nothing is installed or downloaded.

import { spawn, spawnSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';

export const PACKAGE = 'onnxruntime-ep-wgpu';
/** The version of this package, which writes and reads exports of the Python package of the same one. */
export const { version: VERSION } = JSON.parse(readFileSync(new URL('../package.json', import.meta.url), 'utf8'));

const TELL = 'from onnxruntime_ep_wgpu.version import VERSION; print(VERSION)';
const WINDOWS = process.platform === 'win32';

/** Neither a Python with the package was found nor its command; the message has the line that installs it. */
export class MissingError extends Error {
  name = 'MissingError';
}

/**
 * @typedef {{command: string, args: readonly string[], place: string}} Command how `wgpu-ep` is started, and where that was found
 * @typedef {Command & {version: string}} Exporter
 */

/** The Python of a virtual environment, of Conda's too; undefined where there is none. */
function pythonIn(folder) {
  const places = WINDOWS ? ['Scripts/python.exe', 'python.exe'] : ['bin/python', 'bin/python3'];
  return places.map((it) => join(folder, it)).find((it) => existsSync(it));
}

/** A Python as the command. A folder of the application is no place for modules that it imports. */
const asModule = (python, place) => ({ command: python, args: ['-m', 'onnxruntime_ep_wgpu'], place });

function isPython({ args }) {
  return args.length > 0;
}

/** What a program prints, without the end of the line; undefined where it fails or is not there. */
function said(command, args, env) {
  const done = spawnSync(command, args, { env, encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'], windowsHide: true });
  return done.status === 0 ? done.stdout.trim() : undefined;
}

/** The nearest virtual environment that tools keep beside a project. */
function besideProject(folder) {
  const found = pythonIn(join(folder, '.venv'));
  const parent = dirname(folder);
  return found || parent === folder ? found : besideProject(parent);
}

/** The environments that were chosen for this project: what is missing is installed there. */
function* chosen(cwd, env) {
  for (const name of ['VIRTUAL_ENV', 'CONDA_PREFIX']) {
    const python = env[name] && pythonIn(env[name]);
    if (python) yield asModule(python, `$${name} (${python})`);
  }
  const python = besideProject(cwd);
  if (python) yield asModule(python, python);
}

/** Where the command may be, in the order in which that is tried. */
function* places(cwd, env) {
  if (env.WGPU_EP_PYTHON) return yield asModule(env.WGPU_EP_PYTHON, `$WGPU_EP_PYTHON (${env.WGPU_EP_PYTHON})`);
  yield* chosen(cwd, env);
  yield { command: 'wgpu-ep', args: [], place: 'wgpu-ep on the PATH' };
  for (const name of ['python3', 'python', ...(WINDOWS ? ['py'] : [])]) yield asModule(name, `${name} on the PATH`);
  // Tools that keep each package in an environment of its own, which need not be on the PATH.
  for (const [tool, ...args] of [['uv', 'tool', 'dir'], ['pipx', 'environment', '--value', 'PIPX_LOCAL_VENVS']]) {
    const folder = said(tool, args, env);
    const python = folder && pythonIn(join(folder, PACKAGE));
    if (python) yield asModule(python, `${tool} (${python})`);
  }
}

const environment = (env) => ({ ...env, PYTHONSAFEPATH: '1' });

function versionOf(it, env) {
  const text = isPython(it) ? said(it.command, ['-c', TELL], env) : said(it.command, ['--version'], env);
  return text?.split(/\s/).at(-1);
}

/**
 * The first place that has the package. Raises MissingError.
 *
 * @returns {Exporter}
 */
export function findExporter({ cwd = process.cwd(), env = process.env } = {}) {
  const tried = [];
  for (const it of places(cwd, env)) {
    const version = versionOf(it, environment(env));
    if (version) return { ...it, version };
    tried.push(it.place);
  }
  throw new MissingError(`the Python package ${PACKAGE} is not in ${tried.join(', ')}; install it with: ${installing(cwd, env)}`);
}

/** The line that installs the package where it is found afterwards. */
function installing(cwd, env) {
  const quoted = (path) => (/[^\w./:\\-]/.test(path) ? `"${path}"` : path);
  const hasUv = said('uv', ['--version'], env) !== undefined;
  const python = env.WGPU_EP_PYTHON || chosen(cwd, env).next().value?.command;
  if (python && hasUv) return `uv pip install --python ${quoted(python)} ${PACKAGE}`;
  if (python) return `${quoted(python)} -m pip install ${PACKAGE}`;
  if (hasUv) return `uv tool install ${PACKAGE}`;
  if (said('pipx', ['--version'], env) !== undefined) return `pipx install ${PACKAGE}`;
  // Pythons of systems take no packages themselves.
  return WINDOWS ? `py -m venv .venv && .venv\\Scripts\\python -m pip install ${PACKAGE}` : `python3 -m venv .venv && .venv/bin/python -m pip install ${PACKAGE}`;
}

/**
 * Runs the command until it ends; what it writes goes where `stdio` says, as in `spawn`. Signals that end this process are left to
 * the command, which ends first.
 *
 * @param {Exporter} exporter
 * @param {readonly string[]} args
 * @returns {Promise<{code: number | null, signal: NodeJS.Signals | null, stdout: string, stderr: string}>}
 */
export function runExporter({ command, args: first }, args, { cwd = process.cwd(), env = process.env, stdio = 'inherit' } = {}) {
  return new Promise((resolve, reject) => {
    let child;
    // Before there is a command that a signal could leave alone. A terminal sends SIGINT to both.
    const handlers = { SIGINT: () => undefined, SIGTERM: () => child.kill('SIGTERM'), SIGHUP: () => child.kill('SIGHUP') };
    for (const [name, handler] of Object.entries(handlers)) process.on(name, handler);
    const done = () => Object.entries(handlers).forEach(([name, handler]) => process.off(name, handler));
    child = spawn(command, [...first, ...args], { cwd, env: environment(env), stdio, windowsHide: true });
    const texts = { stdout: '', stderr: '' };
    for (const name of Object.keys(texts)) child[name]?.setEncoding('utf8').on('data', (text) => (texts[name] += text));
    child.on('error', (error) => (done(), reject(error)));
    child.on('close', (code, signal) => (done(), resolve({ code, signal, ...texts })));
  });
}
