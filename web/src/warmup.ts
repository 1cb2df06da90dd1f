// Prepares runs of given shapes before the first one. Few pages need it, so it is in a file that is fetched later, with the
// code that measures. It imports nothing of the library.

import type { InferenceSession, Tensor } from 'onnxruntime-common';
import type * as errors from './errors.js';
import type { Program, Value } from './program.js';

/** An input in memory or on the GPU, or only its shape. */
interface Fed {
  readonly dims: readonly number[];
  readonly bytes?: Uint8Array;
  readonly buffer?: GPUBuffer;
}

/** The parts of a session and of its runner that are used. */
interface Asked {
  readonly inputs: readonly Value[];
  readonly inputMetadata: readonly InferenceSession.ValueMetadata[];
  executable(): Planning | Promise<Planning>;
  checkNames(inputs: object): void;
  feed(value: Value, tensor: Tensor): Fed;
  checkOverrides(feeds: readonly Fed[]): void;
}
interface Planning {
  readonly program: Program;
  plan(feeds: readonly Fed[]): Promise<unknown>;
}

/** Prepares everything for runs of these shapes. A tensor stands for its shape and, if needed, its values. Raises InputError. */
export async function warm(
  session: Asked, inputs: Readonly<Record<string, readonly number[] | Tensor>>, { InputError }: Pick<typeof errors, 'InputError'>,
): Promise<void> {
  const executable = await session.executable();
  session.checkNames(inputs);
  const feeds = session.inputs.map((value, k): Fed => {
    const given = inputs[value.name];
    if (given && !Array.isArray(given)) return session.feed(value, given as Tensor);
    const known = session.inputMetadata[k]!;
    const dims: readonly (number | string)[] = (given as readonly number[] | undefined) ?? (known.isTensor ? known.shape : []);
    if (!dims.every((it) => Number.isInteger(it) && Number(it) >= 0)) {
      throw new InputError(`warmup: input '${value.name}' ${given ? `cannot have the shape [${dims.join(', ')}]` : 'has free dimensions: give its shape'}`);
    }
    if (dims.length !== value.shape.length) {
      throw new InputError(`warmup: input '${value.name}' has rank ${dims.length}, the model needs rank ${value.shape.length}`);
    }
    const needed = executable.program.symbols.some((it) => it.isElement && it.input === k);
    if (needed) throw new InputError(`warmup: the values of input '${value.name}' set shapes: pass a tensor`);
    return { dims: dims as readonly number[] };
  });
  session.checkOverrides(feeds);
  await executable.plan(feeds);
}
