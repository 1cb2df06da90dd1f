// `Tensor.fromImage` is a twentieth of the files that contain onnxruntime-common, few pages call it, and it is asynchronous: here a
// build takes it out of them into a file of its own. What makes pictures of tensors has to answer at once, and stays, in fewer bytes. In:
// onnxruntime-common as it is published. Out: plugins of esbuild for the files that contain it, and for that one. Invariant: tensors are
// of the class that the page has.

import { fileURLToPath } from 'node:url';

const COMMON = fileURLToPath(new URL('node_modules/onnxruntime-common/dist/esm', import.meta.url));
const FACTORY = './tensor-factory-impl.js';
const virtual = ({ onLoad }, contents) => onLoad({ filter: /.*/, namespace: 'pictures' }, () => ({ contents, resolveDir: COMMON }));
const unlessOurs = (filter, onResolve, found) =>
  onResolve({ filter }, ({ namespace }) => (namespace === 'pictures' ? undefined : { path: found, namespace: 'pictures' }));

/** `toDataURL` and `toImageData` of a tensor, as onnxruntime-common has them. */
const CONVERSION = `
  const four = (it, last, all) => it === undefined ? all : typeof it === 'number' ? Array(4).fill(it) : [it[0], it[1], it[2], it[3] ?? last];
  /** R, G, B and A of a pixel; each channel is a plane. */
  const pixels = ({ data }, options, plane, last) => {
    const { format = 'RGB', norm } = options ?? {};
    const [mean, bias] = [four(norm?.mean, last, Array(4).fill(255)), four(norm?.bias, 0, Array(4).fill(0))];
    const planes = { RGBA: [0, 1, 2, 3], RBG: [0, 2, 1] }[format] ?? [0, 1, 2];
    return (i) => [0, 1, 2, 3].map((k) => planes[k] === undefined ? 255 : (data[planes[k] * plane + i] - bias[k]) * mean[k]);
  };
  const canvasOf = () => typeof document < 'u' ? document.createElement('canvas') : new OffscreenCanvas(1, 1);
  const contextOf = (canvas) => {
    const context = canvas.getContext('2d');
    if (context) return context;
    throw new Error('Can not access image data');
  };
  const isLast = (options) => options?.tensorLayout === 'NHWC';
  export const tensorToDataURL = (tensor, options) => {
    const canvas = canvasOf();
    const [, , rows, columns] = tensor.dims;
    [canvas.width, canvas.height] = [columns, rows];
    const context = contextOf(canvas);
    const [width, height] = isLast(options) ? [rows, columns] : [columns, rows];
    const pixel = pixels(tensor, options, width * height, 0);
    for (let i = 0; i < width * height; i++) {
      context.fillStyle = 'rgba(' + pixel(i) + ')';
      context.fillRect(i % width, Math.floor(i / width), 1, 1);
    }
    if (canvas.toDataURL) return canvas.toDataURL();
    throw new Error('toDataURL is not supported');
  };
  export const tensorToImageData = (tensor, options) => {
    const context = contextOf(canvasOf());
    const [, a, b, c] = tensor.dims;
    const [width, height, channels] = isLast(options) ? [b, a, c] : [c, b, a];
    const { format } = options ?? {};
    if (options && ((format !== undefined && channels === 4 && format !== 'RGBA') || (channels === 3 && format !== 'RGB' && format !== 'BGR'))) {
      throw new Error("Tensor format doesn't match input tensor dims");
    }
    const pixel = pixels(tensor, options, width * height, 255);
    const image = context.createImageData(width, height);
    for (let i = 0; i < width * height; i++) image.data.set(pixel(i), 4 * i);
    return image;
  };
`;

/** Leaves it out; `file` is fetched when it is called. */
export const withoutPictures = (file) => ({
  name: 'without pictures',
  setup(build) {
    unlessOurs(/\/tensor-factory-impl\.js$/, build.onResolve, 'without');
    build.onResolve({ filter: new RegExp(`^\\./${file}$`) }, ({ path }) => ({ path, external: true }));
    build.onResolve({ filter: /\/tensor-conversion-impl\.js$/ }, () => ({ path: 'conversion', namespace: 'conversion' }));
    build.onLoad({ filter: /.*/, namespace: 'conversion' }, () => ({ contents: CONVERSION }));
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
