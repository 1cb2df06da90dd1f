// A session on an ONNX model with one node, in JavaScript. transformers.js makes such models from bytes for its pre- and
// postprocessing: TopK, Resize, MatMul, Slice, DFT. They are too small for a GPU, and are not exported. In: bytes, and the
// classes of the library, which loads this file with the first of them. Out: a session, or undefined for other bytes.

import type { InferenceSession, InferenceSessionHandler, OnnxValue, Tensor } from 'onnxruntime-common';
import type * as Errors from '../errors.js';
import type { Model, Port } from './model.js';
import { type Operand, type Operator, TYPES, open as opened } from './operators.js';

/** The classes of the library that opens a session. This file has no onnxruntime-common and no errors of its own. */
export interface Library {
  readonly Tensor: typeof Tensor;
  readonly errors: typeof Errors;
}

/** Undefined if the bytes are not a model with one node. Raises ProgramError for an unknown node. */
export function open(library: Library, bytes: Uint8Array): HostSession | undefined {
  try {
    const found = opened(bytes);
    return found && new HostSession(library, found.model, found.operator);
  } catch (error) {
    const { NotExportedError, messageOf } = library.errors;
    const what = messageOf(error);
    throw new NotExportedError(`${what} is only implemented for the GPU: make a program of the model with \`wgpu-ep export\``);
  }
}

class HostSession implements InferenceSessionHandler {
  readonly inputNames: readonly string[];
  readonly outputNames: readonly string[];
  readonly inputMetadata: readonly InferenceSession.ValueMetadata[];
  readonly outputMetadata: readonly InferenceSession.ValueMetadata[];

  constructor(
    private readonly library: Library,
    private readonly model: Model,
    private readonly operator: Operator,
  ) {
    const described = ({ name, type, shape }: Port): InferenceSession.ValueMetadata => ({
      name, isTensor: true, type: TYPES[type]!, shape: shape ?? [],
    });
    this.inputNames = model.inputs.map((it) => it.name);
    this.outputNames = model.outputs.map((it) => it.name);
    this.inputMetadata = model.inputs.map(described);
    this.outputMetadata = model.outputs.map(described);
  }

  async run(feeds: Readonly<Record<string, OnnxValue | null>>): Promise<Record<string, Tensor>> {
    const { node, inputs } = this.model;
    const { Tensor, errors } = this.library;
    const operands = await Promise.all(node.inputs.map((name) => this.#operand(name, inputs, feeds[name])));
    let results: Operand[];
    try {
      results = this.operator.run(operands, node.attributes);
    } catch (error) {
      throw new errors.InputError(`${node.operator}: ${errors.messageOf(error)}`, { cause: error });
    }
    return Object.fromEntries(
      results.map(({ dims, data }, k) => [node.outputs[k]!, new Tensor(data as Float32Array, dims)]),
    );
  }

  async #operand(name: string, inputs: readonly Port[], tensor: OnnxValue | null | undefined): Promise<Operand | undefined> {
    if (!name) return undefined;
    const { Tensor, errors } = this.library;
    const wanted = TYPES[inputs.find((it) => it.name === name)!.type];
    if (!(tensor instanceof Tensor)) throw new errors.InputError(`input '${name}' is not a tensor`);
    if (tensor.type !== wanted) throw new errors.InputError(`input '${name}' is ${tensor.type}, the model needs ${wanted}`);
    return { dims: tensor.dims, data: (await tensor.getData()) as Operand['data'] };
  }

  startProfiling(): void {}

  endProfiling(): void {}

  async dispose(): Promise<void> {}
}
