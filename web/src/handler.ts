// The handler of a session of onnxruntime-common.

import type { InferenceSession } from 'onnxruntime-common';
import { InputError } from './errors.js';

/** Raises InputError for anything but a session, such as a promise of one. */
export function handlerOf(session: InferenceSession): unknown {
  const { handler } = Object(session) as { handler?: unknown };
  if (!handler) throw new InputError(`${String(session)} is not a session: await InferenceSession.create(...)`);
  return handler;
}
