// Pictures of tensors in the files that contain onnxruntime-common, where `toDataURL` and `toImageData` are shorter: the same as there.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import * as common from 'onnxruntime-common';
import * as bundle from '../dist/ort.wgpu.bundle.min.mjs';

/** A canvas that keeps what is drawn. */
globalThis.OffscreenCanvas = class {
  drawn = [];
  getContext() {
    const { drawn } = this;
    return {
      createImageData: (width, height) => ({ width, height, data: new Uint8ClampedArray(4 * width * height) }),
      set fillStyle(style) { drawn.push(style); },
      fillRect: (...place) => drawn.push(place.join()),
    };
  }
  toDataURL() {
    return JSON.stringify([this.width, this.height, this.drawn]);
  }
};

const NORMS = [undefined, { mean: 128, bias: 0.1 }, { mean: [1, 2, 3] }, { mean: [250, 240, 230, 220], bias: [0.1, 0.2, 0.3] }, { bias: [0.1, 0.2, 0.3, 0.4] }];
const OPTIONS = ['RGB', 'RGBA', 'RBG', 'BGR', undefined].flatMap((format) =>
  ['NHWC', 'NCHW', undefined].flatMap((tensorLayout) => NORMS.map((norm) => ({ format, tensorLayout, norm }))));

test('pictures of tensors are those of onnxruntime-common', () => {
  let pictures = 0;
  for (const dims of [[1, 3, 4, 5], [1, 4, 2, 3], [1, 3, 5, 5], [1, 2, 2, 4], [1, 4, 4, 3], [1, 1, 3, 3]]) {
    const data = Float32Array.from({ length: dims.reduce((a, b) => a * b) }, (_, i) => ((i * 37) % 101) / 90 - 0.05);
    for (const options of [undefined, {}, ...OPTIONS]) {
      for (const method of ['toDataURL', 'toImageData']) {
        const [wanted, found] = [common, bundle].map(({ Tensor }) => {
          try {
            const picture = new Tensor('float32', data, dims)[method](options);
            pictures += 1;
            return picture;
          } catch (error) {
            return error.message;
          }
        });
        assert.deepEqual(found, wanted, `${method} of [${dims}] with ${JSON.stringify(options)}`);
      }
    }
  }
  assert(pictures > 500);
});
