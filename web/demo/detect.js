// Faces in pictures and in what a camera sees. Pixels go to the model as a canvas has them, and boxes come back.

import { Tensor } from 'onnxruntime-ep-wgpu-web/proxy';
import { byId, megabytes, open, progress } from './parts.js';

const SIDE = 320; // of what the model looks at
const LEAST = 0.4; // score of a face
const OVERLAP = 0.4; // of two boxes that are one face
const BLOCKS = 8; // across a hidden face

let session;
let stream;
const small = new OffscreenCanvas(SIDE, SIDE).getContext('2d', { willReadFrequently: true });
const blocks = new OffscreenCanvas(BLOCKS, BLOCKS).getContext('2d');

/** How much of two boxes both have. */
function shared([, a, b, c, d], [, e, f, g, h]) {
  const both = Math.max(0, Math.min(c, g) - Math.max(a, e)) * Math.max(0, Math.min(d, h) - Math.max(b, f));
  return both / ((c - a) * (d - b) + (g - e) * (h - f) - both);
}

/** Boxes of the faces in a picture of `width` x `height`: [score, left, top, right, bottom] each. */
async function faces(picture, width, height) {
  const scale = SIDE / Math.max(width, height);
  small.clearRect(0, 0, SIDE, SIDE);
  small.drawImage(picture, 0, 0, width * scale, height * scale);
  const { data } = small.getImageData(0, 0, SIDE, SIDE);
  const result = (await session.run({ pixels: new Tensor('uint8', new Uint8Array(data.buffer), [SIDE, SIDE, 4]) })).faces;
  const found = [];
  for (let k = 0; k < result.data.length; k += 5) {
    const [score, ...edges] = result.data.subarray(k, k + 5);
    const box = [score, ...edges.map((it) => it / scale)];
    if (score >= LEAST && found.every((it) => shared(it, box) < OVERLAP)) found.push(box);
  }
  return found;
}

function draw(picture, width, height, found) {
  const canvas = byId('seen');
  Object.assign(canvas, { width, height, hidden: false });
  const context = canvas.getContext('2d');
  context.drawImage(picture, 0, 0, width, height);
  context.lineWidth = Math.max(2, width / 200);
  context.strokeStyle = '#a08cff';
  for (const [, left, top, right, bottom] of found) {
    const box = [left, top, right - left, bottom - top];
    if (byId('hide-faces').checked) {
      blocks.drawImage(picture, ...box, 0, 0, BLOCKS, BLOCKS);
      context.imageSmoothingEnabled = false;
      context.drawImage(blocks.canvas, 0, 0, BLOCKS, BLOCKS, ...box);
    } else context.strokeRect(...box);
  }
}

const counted = (count) => (count === 1 ? '1 face' : `${count || 'no'} faces`);

let last; // picture that was looked at
async function look(picture, width, height) {
  const begin = performance.now();
  const found = await faces(picture, width, height);
  byId('detect-note').textContent = `${counted(found.length)}, ${(performance.now() - begin).toFixed(0)} ms`;
  draw(picture, width, height, found);
  last = { picture, width, height, found };
}

async function lookAt(blob) {
  await end();
  try {
    const picture = await createImageBitmap(blob);
    await look(picture, picture.width, picture.height);
  } catch (error) {
    last = undefined;
    byId('seen').hidden = true;
    byId('detect-note').textContent = `This is no picture that the browser can read: ${error.message}`;
  }
}

let watching = Promise.resolve();
async function end() {
  stream?.getTracks().forEach((it) => it.stop());
  stream = undefined;
  byId('camera').textContent = 'Start the camera';
  await watching;
}

async function camera() {
  if (stream) {
    await end();
    return;
  }
  byId('camera').disabled = true;
  try {
    stream = await navigator.mediaDevices.getUserMedia({ video: { facingMode: 'user', width: { ideal: 640 } } });
    byId('camera').textContent = 'Stop the camera';
    watching = watch(stream);
  } catch (error) {
    byId('detect-note').textContent = `There is no camera to use: ${error.message}`;
  }
  byId('camera').disabled = false;
}

/** Looks at one frame after another, as fast as the model runs, while the tab is shown. */
async function watch(mine) {
  const video = Object.assign(document.createElement('video'), { srcObject: mine, muted: true, playsInline: true });
  try {
    await video.play();
    while (stream === mine) {
      await new Promise(requestAnimationFrame);
      if (byId('detect').hidden) continue;
      // The frame must stay as it is until its boxes are drawn on it.
      const frame = await createImageBitmap(video);
      await look(frame, frame.width, frame.height);
    }
  } catch (error) {
    byId('detect-note').textContent = `The camera stopped: ${error.message}`;
  }
}

export async function start() {
  try {
    progress('detect', 0, 'Loading the model…');
    [session] = await open('detect', ['model'], (loaded, total) => progress('detect', loaded / total, megabytes(loaded, total)));
    progress('detect', 1, 'Nothing that the camera sees leaves this page.');
  } catch (error) {
    progress('detect', 1, `The model cannot be loaded: ${error.message}`);
    return;
  }
  for (const it of ['camera', 'picture', 'face-example']) byId(it).disabled = false;
  byId('camera').addEventListener('click', () => void camera());
  byId('picture').addEventListener('change', ({ target }) => target.files.length && void lookAt(target.files[0]));
  byId('face-example').addEventListener('click', async () => void lookAt(await (await fetch('./models/detect/example.jpg')).blob()));
  byId('hide-faces').addEventListener('change', () => !stream && last && draw(last.picture, last.width, last.height, last.found));
}
