// A plugin for Vite: `import model from './model.onnx?wgpu'` exports the model when the page is built, or in development when it is
// first asked for, and gives the address of the export. In: ONNX models of the application. Out: files beside those of the page.

import { createReadStream, existsSync, readFileSync, readdirSync, statSync } from 'node:fs';
import { basename, dirname, join, resolve, sep } from 'node:path';
import { ExportError, exported, fileAt } from './cache.mjs';
import { MissingError } from './exporter.mjs';

const NAME = 'onnxruntime-ep-wgpu-web';
const IMPORT = /^([^?]+)\?(?:.*&)?wgpu(?:&|$)/s;
/** What this plugin says itself, or what is about folders of models. */
const REFUSED = ['output', 'json', 'transformers', 'dtype'];
/** Where a server in development has exports. */
const SERVED = /\/@wgpu\/([\da-f]{64})\/([^?#]+)/;
const TYPES = { json: 'application/json', onnx: 'application/octet-stream' };
const SHOWN = 8; // letters of a digest in an address

/** `?override=n=1&fp16&wgpu` as arguments of `wgpu-ep export`. Raises ExportError. */
function argumentsOf(id) {
  const parts = id.slice(id.indexOf('?') + 1).split('&').filter((it) => it && it !== 'wgpu');
  return parts.flatMap((part) => {
    const [, name, , value] = part.match(/^([^=]*)(=(.*))?$/s);
    if (REFUSED.includes(name)) {
      throw new ExportError(`'${name}' cannot stand in an import: it is one model, and the plugin says where its export lies; npx ${NAME} export does the rest`);
    }
    if (value === undefined) return [`--${name}`];
    try {
      return [`--${name}`, decodeURIComponent(value)];
    } catch {
      throw new ExportError(`'${part}' has a % without the two digits of a letter behind it, or letters that are none: write % as %25`);
    }
  });
}

/** The nearest folder for caches: that of the package which `root` belongs to. */
function cacheOf(root) {
  let folder = root;
  while (!existsSync(join(folder, 'package.json'))) {
    const parent = dirname(folder);
    if (parent === folder) return join(root, 'node_modules', '.cache', NAME);
    folder = parent;
  }
  return join(folder, 'node_modules', '.cache', NAME);
}

/** A path as files are called; '' for what is none. */
function decoded(path) {
  try {
    return decodeURIComponent(path);
  } catch {
    return '';
  }
}

/** A path in an address: none of its letters means anything there. */
const addressOf = (path) => path.split('/').map(encodeURIComponent).join('/');

/** The files in a folder, as addresses have them. */
const within = (folder) => readdirSync(folder, { recursive: true }).filter((it) => statSync(join(folder, it)).isFile()).map((it) => it.split(sep).join('/')).sort();

/** @param {import('./vite.d.ts').WgpuOptions} options */
export default function wgpu({ args = [], cache } = {}) {
  let config;
  let place;
  /** Exports that are under way, so that one that is imported twice is made once. */
  const pending = new Map();

  return {
    name: NAME,
    enforce: 'pre', // before plugins that would take the file for an asset

    configResolved(resolved) {
      config = resolved;
      place = cache ? resolve(config.root, cache) : cacheOf(config.root);
    },

    configureServer({ middlewares }) {
      middlewares.use((request, response, next) => {
        const [, digest, path] = (request.url ?? '').match(SERVED) ?? [];
        if (!digest) return next();
        const folder = join(place, digest);
        const file = join(folder, decoded(path));
        const found = file.startsWith(folder + sep) && fileAt(file);
        if (!found) return void response.writeHead(404).end();
        response.writeHead(200, { 'content-type': TYPES[path.split('.').at(-1)] ?? 'application/octet-stream', 'content-length': found.size, 'cache-control': 'no-cache' });
        if (request.method === 'HEAD') response.end();
        else createReadStream(file).on('error', () => response.destroy()).pipe(response);
      });
    },

    async load(id) {
      const model = id.match(IMPORT)?.[1];
      if (!model) return undefined;
      this.addWatchFile(model);
      const { folder, digest, entry, sources, told } = await made(id, model).catch((error) => {
        if (error instanceof ExportError || error instanceof MissingError) this.error({ message: error.message.startsWith(model) ? error.message : `${model}: ${error.message}`, id });
        throw error;
      });
      for (const it of sources) this.addWatchFile(it);
      if (told) this.warn(`${model}: ${told}`);
      if (config.command === 'serve') return code(JSON.stringify(`${config.base}@wgpu/${digest}/${addressOf(entry)}`));
      const assets = [config.build.assetsDir, `${basename(model).replace(/\.[^.]*$/, '')}-${digest.slice(0, SHOWN)}`].filter(Boolean).join('/');
      let reference;
      for (const file of within(folder)) {
        const emitted = this.emitFile({ type: 'asset', fileName: `${assets}/${file}`, source: readFileSync(join(folder, file)) });
        if (file === entry) reference = emitted;
      }
      return code(`import.meta.ROLLUP_FILE_URL_${reference}`);
    },
  };

  async function made(id, model) {
    if (!fileAt(model)) throw new ExportError('there is no such file');
    const all = [...args, ...argumentsOf(id)];
    const key = JSON.stringify([model, all]);
    if (!pending.has(key)) {
      const making = exported({ model, args: all, cache: place, cwd: config.root });
      pending.set(key, making);
      void making.catch(() => undefined).then(() => pending.delete(key));
    }
    return pending.get(key);
  }
}

const code = (value) => ({ code: `export default ${value};`, map: null, moduleType: 'js' });
