// Speech to text: a microphone, a file or the example becomes sound of 16 kHz; Whisper writes what it hears. Spectra, keys and values
// stay on the GPU, and a token is read from there in each step.

import { Tokenizer } from '@huggingface/tokenizers';
import { Tensor } from 'onnxruntime-ep-wgpu-web/proxy';
import { json } from './files.js';
import { byId, megabytes, open, progress } from './parts.js';

const MODEL = './models/speech/';
const RATE = 16000;
const LONGEST = 30; // seconds that the model hears at once
const SHORTEST = 10; // seconds that it must be given: with fewer it says the same again and again
const GRAIN = 5; // seconds that sounds are rounded up to, so that few shapes occur
const QUIET = 1; // seconds at the end, without which the model does not know where to stop
const FASTEST = 10; // tokens a second; more are a loop of the model

let tokenizer;
let tokens;
let models;
let recorder;
let stop;

/** The tokens of a sound of up to 30 seconds, one by one. */
async function* heard(sound, signal) {
  const [mel, encoder, decoder] = models;
  const seconds = Math.max(SHORTEST, Math.min(LONGEST, GRAIN * Math.ceil((sound.length / RATE + QUIET) / GRAIN)));
  const padded = new Float32Array(seconds * RATE);
  padded.set(sound.subarray(0, padded.length));
  const spectrum = await mel.run({ sound: new Tensor('float32', padded, [1, padded.length]) });
  const cross = await encoder.run(spectrum);
  spectrum.mel.dispose();
  const empty = ({ name, shape }) => [name, new Tensor('float32', new Float32Array(0), shape.map((it) => (typeof it === 'number' ? it : 0)))];
  let past = Object.fromEntries(decoder.inputMetadata.filter((it) => it.name.startsWith('past')).map(empty));
  let ids = [tokens.start, tokens.plain];
  try {
    for (let k = 0; k < FASTEST * seconds; k++) {
      signal.throwIfAborted();
      const { next, ...present } = await decoder.run({ input_ids: new Tensor('int64', BigInt64Array.from(ids, BigInt), [1, ids.length]), ...cross, ...past });
      for (const it of Object.values(past)) it.dispose();
      past = Object.fromEntries(Object.entries(present).map(([name, it]) => [name.replace('present', 'past_key_values'), it]));
      ids = [Number((await next.getData())[0])];
      next.dispose();
      if (ids[0] === tokens.end) return;
      yield ids[0];
    }
  } finally {
    for (const it of [...Object.values(cross), ...Object.values(past)]) it.dispose();
  }
}

/** Writes what is said in a file or a recording, 30 seconds after 30 seconds. */
async function write(blob) {
  stop = new AbortController();
  buttons(true);
  byId('heard').textContent = '';
  const note = (text) => (byId('speech-note').textContent = text);
  try {
    note('Listening…');
    const sound = await decoded(blob);
    const begin = performance.now();
    let before = '';
    for (let at = 0; at < sound.length; at += (LONGEST - QUIET) * RATE) {
      const ids = [];
      for await (const token of heard(sound.subarray(at, at + (LONGEST - QUIET) * RATE), stop.signal)) {
        ids.push(token);
        byId('heard').textContent = before + tokenizer.decode(ids, { skip_special_tokens: true });
      }
      before = byId('heard').textContent;
    }
    const [length, took] = [sound.length / RATE, (performance.now() - begin) / 1000];
    byId('heard').textContent = before.trim() || '(nothing)';
    note(`${length.toFixed(1)} s of sound in ${took.toFixed(1)} s`);
  } catch (error) {
    note(error.name === 'AbortError' ? 'Stopped.' : `The browser cannot read this sound: ${error.message}`);
  }
  stop = undefined;
  buttons(false);
}

/** Samples at 16 kHz, the mean of all channels. */
async function decoded(blob) {
  const buffer = await new OfflineAudioContext(1, 1, RATE).decodeAudioData(await blob.arrayBuffer());
  const channels = Array.from({ length: buffer.numberOfChannels }, (_, k) => buffer.getChannelData(k));
  return channels.length === 1 ? channels[0] : channels[0].map((_, k) => channels.reduce((sum, it) => sum + it[k], 0) / channels.length);
}

function buttons(busy) {
  byId('record').textContent = busy ? 'Stop' : 'Record';
  for (const it of ['sound', 'sound-example']) byId(it).disabled = busy;
}

async function record() {
  if (stop) {
    stop.abort();
    return;
  }
  if (recorder) {
    recorder.stop();
    return;
  }
  let stream;
  try {
    stream = await navigator.mediaDevices.getUserMedia({ audio: true });
    recorder = new MediaRecorder(stream);
  } catch (error) {
    stream?.getTracks().forEach((it) => it.stop());
    byId('speech-note').textContent = `There is no microphone to use: ${error.message}`;
    return;
  }
  const parts = [];
  const begin = performance.now();
  const clock = setInterval(() => {
    const seconds = (performance.now() - begin) / 1000;
    byId('speech-note').textContent = `Recording, ${seconds.toFixed(0)} s. Press Stop to read it.`;
    if (seconds > LONGEST - QUIET) recorder?.stop();
  }, 250);
  recorder.ondataavailable = ({ data }) => parts.push(data);
  recorder.onstop = () => {
    clearInterval(clock);
    stream.getTracks().forEach((it) => it.stop());
    const type = recorder.mimeType;
    recorder = undefined;
    void write(new Blob(parts, { type }));
  };
  recorder.start();
  buttons(true);
}

export async function start() {
  try {
    progress('speech', 0, 'Loading the model…');
    const told = (loaded, total) => progress('speech', loaded / total, megabytes(loaded, total));
    const read = Promise.all([json(`${MODEL}tokenizer.json`), json(`${MODEL}tokens.json`)]);
    models = await open('speech', ['mel', 'encoder', 'decoder'], told, { preferredOutputLocation: 'gpu-buffer' });
    const [vocabulary, known] = await read;
    tokenizer = new Tokenizer(vocabulary, {});
    tokens = known;
    progress('speech', 1, 'English, up to 29 seconds a recording. No sound leaves this page.');
  } catch (error) {
    progress('speech', 1, `The model cannot be loaded: ${error.message}`);
    return;
  }
  for (const it of ['record', 'sound', 'sound-example']) byId(it).disabled = false;
  byId('record').addEventListener('click', () => void record());
  byId('sound').addEventListener('change', ({ target }) => target.files.length && void write(target.files[0]));
  byId('sound-example').addEventListener('click', async () => void write(await (await fetch(`${MODEL}example.wav`)).blob()));
}
