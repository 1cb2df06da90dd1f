// A conversation with a causal language model in a worker. Its words are shown as they come.

import { Template } from '@huggingface/jinja';
import { Tokenizer } from '@huggingface/tokenizers';
import { InferenceSession, generate, streamText } from 'onnxruntime-ep-wgpu-web/proxy';
import { json } from './files.js';
import { byId } from './parts.js';

const MODEL = './models/chat/';
const MOST = 200;

let about;
let config;
let tokenizer;
let session;
let stop;
const messages = [];

function say(role, text = '') {
  const line = Object.assign(document.createElement('p'), { className: role, textContent: text });
  const log = byId('log');
  log.append(line);
  log.scrollTop = log.scrollHeight;
  return line;
}

/** The tokens of the conversation, in the model's own template where it has one. */
function prompt() {
  const text = config.chat_template
    ? new Template(config.chat_template).render({ messages, add_generation_prompt: true, bos_token: config.bos_token ?? '', eos_token: config.eos_token ?? '' })
    : messages.map((it) => it.content).join('\n');
  return tokenizer.encode(text).ids;
}

const ends = () => {
  const end = typeof config.eos_token === 'object' ? config.eos_token?.content : config.eos_token;
  const token = end === undefined ? undefined : tokenizer.token_to_id(end);
  return token === undefined ? [] : [token];
};

async function reply() {
  const line = say('model', '…');
  stop = new AbortController();
  byId('send').textContent = 'Stop';
  const begin = performance.now();
  let count = 0;
  let text = '';
  const counted = async function* (tokens) {
    for await (const token of tokens) {
      count += 1;
      yield token;
    }
  };
  try {
    const tokens = generate(session, prompt(), {
      maxNewTokens: MOST, temperature: Number(byId('temperature').value), topP: Number(byId('top-p').value),
      stopTokens: ends(), signal: stop.signal,
    });
    for await (const piece of streamText(tokenizer, counted(tokens))) {
      text += piece;
      line.textContent = text;
      byId('log').scrollTop = byId('log').scrollHeight;
      byId('speed').textContent = `${(count / ((performance.now() - begin) / 1000)).toFixed(1)} tokens/s`;
    }
  } catch (error) {
    if (error.name !== 'AbortError') {
      line.classList.add('error');
      text = error.message;
    }
  }
  line.textContent = text || '(nothing)';
  messages.push({ role: 'assistant', content: text });
  stop = undefined;
  byId('send').textContent = 'Send';
}

async function submit(event) {
  event.preventDefault();
  if (stop) {
    stop.abort();
    return;
  }
  const field = byId('message');
  const text = field.value.trim();
  if (!text || !session) return;
  field.value = '';
  messages.push({ role: 'user', content: text });
  say('you', text);
  await reply();
}

export async function start() {
  byId('chat-form').addEventListener('submit', (event) => void submit(event));
  byId('message').addEventListener('keydown', (event) => {
    if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    byId('chat-form').requestSubmit();
  });
  for (const name of ['temperature', 'top-p']) byId(name).addEventListener('input', ({ target }) => (byId(`${name}-shown`).textContent = target.value));
  byId('speed').textContent = 'Loading…';
  byId('message').disabled = false; // one may write meanwhile
  try {
    [about, config] = await Promise.all([json(`${MODEL}about.json`), json(`${MODEL}tokenizer_config.json`)]);
    tokenizer = new Tokenizer(await json(`${MODEL}tokenizer.json`), config);
    byId('chat-about').textContent = `${about.title}: its KV cache and the choice of the next word stay on the GPU.`;
    session = await InferenceSession.create(MODEL + about.model, { executionProviders: ['webgpu'] });
    byId('speed').textContent = '';
    byId('send').disabled = false;
  } catch (error) {
    say('model', `The model cannot be loaded: ${error.message}`).classList.add('error');
    byId('speed').textContent = '';
  }
}
