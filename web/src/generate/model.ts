// The interface of a session for the loop: results on the GPU, by name, without tensor objects. In: a session. Out: `Model`.

import type * as errors from '../errors.js';
import type { Wanted } from '../executable.js';
import type { Gpu } from '../device.js';
import type { DType } from '../dtypes.js';
import type { Session } from '../session.js';

/** A value of the model. A free dim is a name. */
export interface Port {
  readonly name: string;
  readonly type: string;
  readonly dtype: DType;
  readonly shape: readonly (number | string)[];
}

/** An input, in memory or on the GPU. */
export interface Fed {
  readonly dims: readonly number[];
  readonly bytes?: Uint8Array;
  readonly buffer?: GPUBuffer;
}
export interface Made {
  readonly dims: readonly number[];
  readonly buffer: GPUBuffer;
}

/** The interface of a session for the loop. */
export interface Model {
  readonly inputs: readonly Port[];
  readonly outputs: readonly Port[];
  /** The operators of its nodes. */
  readonly operators: ReadonlySet<string>;
  /** Runs with results on the GPU, only those of `wanted`, in new buffers or in given ones. */
  run(feeds: Readonly<Record<string, Fed>>, wanted: Readonly<Record<string, 'new' | Made>>): Promise<Record<string, Made>>;
  gpu(): Promise<Gpu>;
  recycle(buffer: GPUBuffer): void;
  /** Makes an error about the model's inputs and outputs. */
  wrong(message: string): Error;
}

export function modelOf(session: Session, { InputError }: typeof errors): Model {
  const { inputNames, outputNames } = session;
  const ports = (metadata: Session['inputMetadata'], values: Session['inputs']): Port[] =>
    metadata.map((it, k) => ({ name: it.name, type: it.isTensor ? it.type : '', dtype: values[k]!.dtype, shape: it.isTensor ? it.shape : [] }));
  return {
    inputs: ports(session.inputMetadata, session.inputs),
    outputs: ports(session.outputMetadata, session.outputs),
    operators: session.operators,
    gpu: async () => (await session.executable()).gpu,
    wrong: (message) => new InputError(message),
    recycle: (buffer) => session.recycle(buffer),
    run: async (feeds, wanted) => {
      const executable = await session.executable();
      const places = outputNames.map((it): Wanted => (wanted[it] === 'new' ? 'gpu' : wanted[it]));
      const results = await executable.run(inputNames.map((it) => feeds[it]!), places);
      return Object.fromEntries(Object.keys(wanted).map((it) => [it, results[outputNames.indexOf(it)] as Made]));
    },
  };
}
