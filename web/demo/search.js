// Search by meaning: sentences and the query become vectors in a worker; the nearest sentences answer.

import { Tokenizer } from '@huggingface/tokenizers';
import { Tensor } from 'onnxruntime-ep-wgpu-web/proxy';
import { json } from './files.js';
import { byId, megabytes, open, progress } from './parts.js';
import { SENTENCES } from './sentences.js';

const MODEL = './models/search/';
const EXAMPLES = ['something to eat', 'how machines learn', 'my back hurts', 'a quiet place by the water', 'saving money'];
const BATCH = 8;
const SHOWN = 6;

let session;
let tokenizer;
const vectors = [];

/** The vectors of sentences, of length 1. */
async function embed(sentences) {
  const all = sentences.map((it) => tokenizer.encode(it).ids);
  const length = Math.max(...all.map((it) => it.length));
  const tensor = (value) => new Tensor('int64', BigInt64Array.from(all.flatMap((ids) => Array.from({ length }, (_, k) => value(ids, k)))), [all.length, length]);
  const { sentence_embedding: found } = await session.run({
    input_ids: tensor((ids, k) => BigInt(ids[k] ?? 0)),
    attention_mask: tensor((ids, k) => (k < ids.length ? 1n : 0n)),
    token_type_ids: tensor(() => 0n),
  });
  const width = found.dims[1];
  return all.map((_, k) => found.data.subarray(k * width, (k + 1) * width));
}

/** The vectors of all sentences, kept by the browser from an earlier visit, or made now. */
async function index() {
  const words = new Uint8Array(await crypto.subtle.digest('SHA-256', new TextEncoder().encode(SENTENCES.join('\n'))));
  const key = `./vectors?${Array.from(words, (it) => it.toString(16)).join('')}`;
  const cache = await caches.open('vectors').catch(() => undefined);
  const kept = await cache?.match(key);
  if (kept) {
    const all = new Float32Array(await kept.arrayBuffer());
    const width = all.length / SENTENCES.length;
    vectors.push(...SENTENCES.map((_, k) => all.subarray(k * width, (k + 1) * width)));
    return;
  }
  for (let k = 0; k < SENTENCES.length; k += BATCH) {
    progress('search', 0.7 + 0.3 * (k / SENTENCES.length), `Reading sentences, ${k} of ${SENTENCES.length}`);
    vectors.push(...(await embed(SENTENCES.slice(k, k + BATCH))));
  }
  await cache?.put(key, new Response(new Blob(vectors)));
}

let asked = 0;
async function answer() {
  const mine = ++asked;
  const text = byId('query').value.trim();
  if (!text) {
    byId('results').replaceChildren();
    byId('search-note').textContent = `${SENTENCES.length} sentences are ready.`;
    return;
  }
  const begin = performance.now();
  const [query] = await embed([text]);
  if (mine !== asked) return; // a later letter was typed
  const took = performance.now() - begin;
  const near = vectors.map((it, k) => [it.reduce((sum, x, n) => sum + x * query[n], 0), SENTENCES[k]]).sort((a, b) => b[0] - a[0]);
  byId('search-note').textContent = `${SENTENCES.length} sentences, ${took.toFixed(0)} ms`;
  byId('results').replaceChildren(...near.slice(0, SHOWN).map(([score, sentence]) => {
    const row = document.createElement('li');
    row.append(sentence, Object.assign(document.createElement('div'), { className: 'meter' }), Object.assign(document.createElement('span'), { textContent: score.toFixed(2) }));
    const fill = document.createElement('div');
    fill.style.width = `${Math.max(0, (100 * score) / near[0][0])}%`;
    row.children[0].append(fill);
    return row;
  }));
}

export async function start() {
  try {
    progress('search', 0, 'Loading the model…');
    const told = (loaded, total) => progress('search', 0.7 * (loaded / total), megabytes(loaded, total));
    [tokenizer, [session]] = await Promise.all([
      Promise.all([json(`${MODEL}tokenizer.json`), json(`${MODEL}tokenizer_config.json`)]).then(([model, config]) => new Tokenizer(model, config)),
      open('search', ['model'], told),
    ]);
    await index();
    progress('search', 1, `${SENTENCES.length} sentences are ready.`);
  } catch (error) {
    progress('search', 1, `The model cannot be loaded: ${error.message}`);
    return;
  }
  const query = byId('query');
  query.disabled = false;
  query.addEventListener('input', () => void answer());
  query.form.addEventListener('submit', (event) => event.preventDefault());
  byId('examples').replaceChildren(...EXAMPLES.map((text) => {
    const chip = Object.assign(document.createElement('button'), { type: 'button', textContent: text });
    chip.addEventListener('click', () => {
      query.value = text;
      void answer();
    });
    return chip;
  }));
}
