// `Tensor.fromImage` is a twentieth of the files that contain onnxruntime-common, few pages call it, and it is asynchronous: here a
// build takes it out of them into a file of its own. In: onnxruntime-common as it is published. Out: plugins of esbuild for the files
// that contain it, and for that one. Invariant: tensors are of the class that the page has.

import { fileURLToPath } from 'node:url';

const COMMON = fileURLToPath(new URL('node_modules/onnxruntime-common/dist/esm', import.meta.url));
const FACTORY = './tensor-factory-impl.js';
const virtual = ({ onLoad }, contents) => onLoad({ filter: /.*/, namespace: 'pictures' }, () => ({ contents, resolveDir: COMMON }));
const unlessOurs = (filter, onResolve, found) =>
  onResolve({ filter }, ({ namespace }) => (namespace === 'pictures' ? undefined : { path: found, namespace: 'pictures' }));

/** Leaves it out; `file` is fetched when it is called. */
export const withoutPictures = (file) => ({
  name: 'without pictures',
  setup(build) {
    unlessOurs(/\/tensor-factory-impl\.js$/, build.onResolve, 'without');
    build.onResolve({ filter: new RegExp(`^\\./${file}$`) }, ({ path }) => ({ path, external: true }));
    virtual(build, `
      import { Tensor } from './tensor-impl.js';
      export { tensorFromGpuBuffer, tensorFromMLTensor, tensorFromPinnedBuffer, tensorFromTexture } from '${FACTORY}';
      export const tensorFromImage = async (...given) => (await import('./${file}')).open(Tensor, ...given);
    `);
  },
});

/** The file: `open(Tensor, image, options)`. */
export const pictures = {
  name: 'pictures',
  setup(build) {
    build.onResolve({ filter: /^pictures$/ }, () => ({ path: 'entry', namespace: 'pictures' }));
    build.onResolve({ filter: /\/tensor-impl\.js$/ }, () => ({ path: 'tensor', namespace: 'pictures' }));
    build.onLoad({ filter: /^tensor$/, namespace: 'pictures' }, () => ({ contents: 'export let Tensor; export const use = (it) => void (Tensor = it);' }));
    virtual(build, `
      import { tensorFromImage } from '${FACTORY}';
      import { use } from './tensor-impl.js';
      export const open = (Tensor, ...given) => (use(Tensor), tensorFromImage(...given));
    `);
  },
};
