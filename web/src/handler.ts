// What is behind a session of onnxruntime-common.

import type { InferenceSession } from 'onnxruntime-common';
import { InputError } from './errors.js';

/** Raises InputError for what is no session, as a promise of one. */
export function handlerOf(session: InferenceSession): unknown {
  const { handler } = Object(session) as { handler?: unknown };
  if (!handler) throw new InputError(`${String(session)} is no session: await InferenceSession.create(...)`);
  return handler;
}
