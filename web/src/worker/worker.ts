// The worker of the proxy, with sessions and GPU tensors. It is ready-made. A page starts it through proxy.ts.

import { InferenceSession, Tensor, env } from 'onnxruntime-common';
import { NotExportedError } from '../errors.js';
import { checkWebGPUSupport, clearCache, generate, memory, warmup } from '../index.js';
import { type Answer, type Calls, type Environment, type Request, type Sent, type SentTensors, inMemory } from './protocol.js';

const port = globalThis as unknown as { postMessage(message: Answer, transfer: Transferable[]): void; onmessage: unknown };
const sessions = new Map<number, InferenceSession>();
const held = new Map<number, Tensor>();
const numbers = new WeakMap<Tensor, number>();
const ends = new Map<number, AbortController>(); // of creations and generations
let next = 0;

function opened(sent: Sent): Tensor {
  if (sent.held === undefined) return inMemory(sent);
  const tensor = held.get(sent.held);
  if (!tensor) throw new TypeError('this tensor is disposed of');
  return tensor;
}

const tensors = (sent: SentTensors): Record<string, Tensor | null> =>
  Object.fromEntries(Object.entries(sent).map(([name, it]) => [name, it && opened(it)]));

function sent(tensor: Tensor, transfer: Set<Transferable>): Sent {
  const { type, dims } = tensor;
  if (tensor.location === 'gpu-buffer') {
    let number = numbers.get(tensor);
    if (number === undefined) {
      numbers.set(tensor, (number = ++next));
      held.set(number, tensor);
    }
    return { type, dims, held: number };
  }
  const data = tensor.data as Exclude<Tensor['data'], string[]>;
  transfer.add(data.buffer as ArrayBuffer);
  return { type, dims, data };
}

function adopt({ powerPreference, forceFallbackAdapter, profiling, told }: Environment): void {
  const ondata = (profile: unknown): void => port.postMessage({ id: -1, told: { profile } }, []);
  Object.assign(env.webgpu, { powerPreference, forceFallbackAdapter, profiling: { mode: profiling ? 'default' : 'off', ...(told && { ondata }) } });
}

type Handlers = { [Name in keyof Calls]: (id: number, transfer: Set<Transferable>, ...given: Parameters<Calls[Name]>) => ReturnType<Calls[Name]> | Promise<ReturnType<Calls[Name]>> };
const handlers: Handlers = {
  async create(id, _transfer, source, options, environment) {
    adopt(environment);
    const onProgress = (progress: { loaded: number; total: number }): void => port.postMessage({ id, told: { progress } }, []);
    const end = new AbortController();
    ends.set(id, end);
    const executionProviders = [{ ...(options.executionProviders?.[0] as object), name: 'webgpu', onProgress, signal: end.signal }];
    try {
      const session = await InferenceSession.create(source as string, { ...options, executionProviders });
      sessions.set(++next, session);
      return { session: next, inputs: session.inputMetadata, outputs: session.outputMetadata };
    } finally {
      ends.delete(id);
    }
  },
  async run(_id, transfer, session, feeds, fetches, options, environment) {
    adopt(environment);
    const results = await sessions.get(session)!.run(tensors(feeds) as Record<string, Tensor>, tensors(fetches), options);
    return Object.fromEntries(Object.entries(results).map(([name, it]) => [name, sent(it as Tensor, transfer)]));
  },
  warmup(_id, _transfer, session, inputs) {
    const given = Object.entries(inputs).map(([name, it]) => [name, Array.isArray(it) ? it : opened(it as Sent)]);
    return warmup(sessions.get(session)!, Object.fromEntries(given));
  },
  profile(_id, _transfer, session, on) {
    const found = sessions.get(session);
    if (on) found?.startProfiling();
    else found?.endProfiling();
  },
  async generate(id, _transfer, session, texts, options, feeds) {
    const end = new AbortController();
    ends.set(id, end);
    const more = Object.fromEntries(Object.entries(feeds).map(([name, it]) => [name, opened(it)]));
    try {
      for await (const step of generate(sessions.get(session)!, texts, { ...options, feeds: more })) {
        if (end.signal.aborted) break;
        port.postMessage({ id, told: { step } }, []);
      }
    } finally {
      ends.delete(id);
    }
  },
  cancel(_id, _transfer, id) {
    ends.get(id)?.abort();
  },
  async release(_id, _transfer, session) {
    const found = sessions.get(session);
    sessions.delete(session);
    await found?.release();
  },
  async read(_id, transfer, number) {
    const data = (await opened({ held: number } as Sent).getData()) as Uint8Array;
    // The bytes are copied and not transferred, so that the tensor stays usable.
    const copy = data.slice();
    transfer.add(copy.buffer);
    return copy;
  },
  dispose(_id, _transfer, number) {
    held.get(number)?.dispose();
    held.delete(number);
  },
  support(_id, _transfer, environment) {
    adopt(environment);
    return checkWebGPUSupport();
  },
  memory: () => memory(),
  clearCache: () => clearCache(),
};

port.onmessage = async ({ data: { id, call, given } }: { data: Request }): Promise<void> => {
  const transfer = new Set<Transferable>();
  let answer: Answer;
  try {
    const handler = handlers[call] as (id: number, transfer: Set<Transferable>, ...given: readonly unknown[]) => unknown;
    answer = { id, result: await handler(id, transfer, ...given) };
  } catch (error) {
    const { name, message } = error as Error;
    answer = { id, error: { name, message, plain: error instanceof NotExportedError } };
  }
  port.postMessage(answer, [...transfer]);
};
