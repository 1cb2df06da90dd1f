// Exports that were made before. In: a model, and arguments of `wgpu-ep export`. Out: a folder with the export. Invariants: a
// folder is named after the digest of everything that it was made of, and it is there whole or not at all.

import { createHash } from 'node:crypto';
import { createReadStream, existsSync, mkdirSync, mkdtempSync, readFileSync, renameSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { basename, dirname, join, relative, resolve } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { PACKAGE, VERSION, findExporter, runExporter } from './exporter.mjs';

/** The command says what is wrong with the model or with the arguments. */
export class ExportError extends Error {
  name = 'ExportError';
}

/**
 * @typedef {object} Made
 * @property {string} folder what the export wrote lies in it, beside it the ONNX model where that is kept
 * @property {string} digest the folder's name
 * @property {string} entry the file in it that a session opens: the manifest, or the single file
 * @property {readonly string[]} sources files that it was made of
 * @property {string} told what the command wrote to its standard error, '' if it was not run
 */

async function digestOf(file) {
  const hash = createHash('sha256');
  await pipeline(createReadStream(file), hash);
  return hash.digest('hex');
}

const digest = (value) => createHash('sha256').update(JSON.stringify(value)).digest('hex');

/** The size and the times of a file; undefined for what is none, and for a name that no file can have. */
export function fileAt(path) {
  try {
    const found = statSync(path);
    return found.isFile() ? found : undefined;
  } catch {
    return undefined;
  }
}

/** The files that arguments name, as `--input NAME=FILE` does. */
function filesOf(args, cwd) {
  return args.map((it) => resolve(cwd, it.slice(it.indexOf('=') + 1))).filter(fileAt);
}

/** Writes a file or a folder whole: another process may do the same, whose result is as good. */
function keep(from, to) {
  try {
    renameSync(from, to);
  } catch (error) {
    if (!existsSync(to)) throw error;
    rmSync(from, { recursive: true });
  }
}

/**
 * The export of `model` with `args`, from the cache or made now. Raises ExportError, MissingError.
 *
 * @param {{model: string, args: readonly string[], cache: string, cwd: string, env?: NodeJS.ProcessEnv}} of
 * @returns {Promise<Made>}
 */
export async function exported({ model, args, cache, cwd, env = process.env }) {
  const given = filesOf(args, cwd);
  const key = digest([VERSION, basename(model), args, await Promise.all([model, ...given].map(digestOf))]);
  // Which files have weights of the model, the model alone knows, so that is remembered.
  const known = join(cache, `${key}.json`);
  const whole = async (beside) => {
    const files = beside.map((it) => resolve(dirname(model), it));
    if (!files.every((it) => existsSync(it))) return undefined;
    return { digest: beside.length ? digest([key, await Promise.all(files.map(digestOf))]) : key, sources: [model, ...files, ...given] };
  };
  const single = args.includes('--single-file');
  const name = single ? `${basename(model).replace(/\.[^.]*$/, '')}.wgpu` : `${basename(model)}.wgpu`;
  const entry = single ? name : `${name}/manifest.json`;
  const before = existsSync(known) && (await whole(JSON.parse(readFileSync(known, 'utf8'))));
  if (before && existsSync(join(cache, before.digest))) return { ...before, folder: join(cache, before.digest), entry, told: '' };

  const exporter = findExporter({ cwd, env });
  if (exporter.version !== VERSION) {
    throw new ExportError(`${PACKAGE} is ${exporter.version} in ${exporter.place}, and exports that this package reads are of ${VERSION}: install ${PACKAGE}==${VERSION}`);
  }
  mkdirSync(cache, { recursive: true });
  const temporary = mkdtempSync(join(cache, 'partial-'));
  try {
    const folder = join(temporary, 'export');
    mkdirSync(folder);
    const all = ['export', model, ...args, '--json', '--output', join(folder, name)];
    const { code, signal, stdout, stderr } = await runExporter(exporter, all, { cwd, env, stdio: ['ignore', 'pipe', 'pipe'] }).catch((error) => {
      throw new ExportError(`${exporter.place} does not start: ${error.message}`); // as with a NUL in an argument
    });
    if (code !== 0) throw new ExportError(problem(stderr) || `wgpu-ep export ended with ${signal ?? code}`);
    const beside = JSON.parse(stdout).sources.map((it) => relative(dirname(model), resolve(cwd, it))).filter((it) => it !== basename(model));
    const made = await whole(beside);
    writeFileSync(join(temporary, 'known'), JSON.stringify(beside));
    keep(folder, join(cache, made.digest));
    keep(join(temporary, 'known'), known);
    return { ...made, folder: join(cache, made.digest), entry, told: stderr.trim() };
  } finally {
    rmSync(temporary, { recursive: true, force: true });
  }
}

/** What is wrong: a line of JSON, behind warnings perhaps. */
function problem(stderr) {
  try {
    return JSON.parse(stderr.trim().split('\n').at(-1)).error.message;
  } catch {
    return stderr.trim();
  }
}
