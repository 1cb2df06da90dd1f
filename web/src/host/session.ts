// A session on an ONNX model of one node, in JavaScript. transformers.js makes such models of bytes for its pre- and
// postprocessing: TopK, Resize, MatMul, Slice, DFT. They are too small for a GPU, and nobody exports them. What runs them is
// fetched with the first one.

import { type InferenceSession, type InferenceSessionHandler, type OnnxValue, Tensor } from 'onnxruntime-common';
import { InputError, ProgramError, messageOf } from '../errors.js';
import type { Model, Port } from './model.js';
import type { Operand, Operator } from './operators.js';

type Types = Readonly<Record<number, 'float32' | 'int64'>>;

export class HostSession implements InferenceSessionHandler {
  readonly inputNames: readonly string[];
  readonly outputNames: readonly string[];
  readonly inputMetadata: readonly InferenceSession.ValueMetadata[];
  readonly outputMetadata: readonly InferenceSession.ValueMetadata[];

  private constructor(
    private readonly model: Model,
    private readonly operator: Operator,
    private readonly types: Types,
  ) {
    const described = ({ name, type, shape }: Port): InferenceSession.ValueMetadata => ({
      name, isTensor: true, type: types[type]!, shape: shape ?? [],
    });
    this.inputNames = model.inputs.map((it) => it.name);
    this.outputNames = model.outputs.map((it) => it.name);
    this.inputMetadata = model.inputs.map(described);
    this.outputMetadata = model.outputs.map(described);
  }

  /** Undefined when the bytes are no model of one node. Raises ProgramError for a node that is not known here. */
  static async create(bytes: Uint8Array): Promise<HostSession | undefined> {
    const { TYPES, open } = await import('./operators.js').catch((error) => {
      throw new ProgramError(
        'the model is not an exported model: make one of an ONNX model with `wgpu-ep export`; or it is of a single node, and ' +
          `ort.wgpu.host.mjs, which runs such, cannot be loaded beside the library: ${messageOf(error).slice(0, 200)}`,
        { cause: error },
      );
    });
    try {
      const found = open(bytes);
      return found && new HostSession(found.model, found.operator, TYPES);
    } catch (error) {
      const what = messageOf(error);
      throw new ProgramError(`${what} is only implemented for the GPU: make a program of the model with \`wgpu-ep export\``);
    }
  }

  async run(feeds: Readonly<Record<string, OnnxValue | null>>): Promise<Record<string, Tensor>> {
    const { node, inputs } = this.model;
    const operands = await Promise.all(node.inputs.map((name) => this.#operand(name, inputs, feeds[name])));
    let results: Operand[];
    try {
      results = this.operator.run(operands, node.attributes);
    } catch (error) {
      throw new InputError(`${node.operator}: ${messageOf(error)}`, { cause: error });
    }
    return Object.fromEntries(
      results.map(({ dims, data }, k) => [node.outputs[k]!, new Tensor(data as Float32Array, dims)]),
    );
  }

  async #operand(name: string, inputs: readonly Port[], tensor: OnnxValue | null | undefined): Promise<Operand | undefined> {
    if (!name) return undefined;
    const wanted = this.types[inputs.find((it) => it.name === name)!.type];
    if (!(tensor instanceof Tensor)) throw new InputError(`input '${name}' is not a tensor`);
    if (tensor.type !== wanted) throw new InputError(`input '${name}' is ${tensor.type}, the model wants ${wanted}`);
    return { dims: tensor.dims, data: (await tensor.getData()) as Operand['data'] };
  }

  startProfiling(): void {}

  endProfiling(): void {}

  async dispose(): Promise<void> {}
}
