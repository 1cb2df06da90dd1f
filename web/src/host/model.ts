// Reads an ONNX model with a single node from its bytes. In: protobuf. Out: the node with its attributes, and the names and
// types of inputs and outputs. Undefined for anything else, such as a model with several nodes or with weights.

export interface Port {
  readonly name: string;
  /** ONNX's number of the element type; 1 for float32. */
  readonly type: number;
  /** Numbers or names; undefined if the model does not state it. */
  readonly shape: readonly (number | string)[] | undefined;
}

export interface Node {
  readonly operator: string;
  /** '' for an omitted input. */
  readonly inputs: readonly string[];
  readonly outputs: readonly string[];
  readonly attributes: ReadonlyMap<string, number | string>;
}

export interface Model {
  readonly node: Node;
  readonly inputs: readonly Port[];
  readonly outputs: readonly Port[];
}

type Field = number | Uint8Array;
type Message = Map<number, Field[]>;

/** Returns the fields of a message by number. Throws if the bytes are not a message. */
function message(bytes: Uint8Array): Message {
  const fields: Message = new Map();
  let at = 0;
  const varint = (): number => {
    let value = 0n;
    for (let shift = 0n; ; shift += 7n) {
      const byte = bytes[at++];
      if (byte === undefined || shift > 63n) throw new RangeError('not a message');
      value |= BigInt(byte & 127) << shift;
      if (byte < 128) return Number(BigInt.asIntN(64, value));
    }
  };
  const take = (length: number): Uint8Array => {
    if (!(length >= 0 && at + length <= bytes.length)) throw new RangeError('not a message');
    return bytes.subarray(at, (at += length));
  };
  while (at < bytes.length) {
    const key = varint();
    const kind = key & 7;
    let value: Field;
    if (kind === 0) value = varint();
    else if (kind === 2) value = take(varint());
    else if (kind === 5) value = new DataView(take(4).slice().buffer).getFloat32(0, true);
    else if (kind === 1) value = new DataView(take(8).slice().buffer).getFloat64(0, true);
    else throw new RangeError('not a message');
    const number = Math.floor(key / 8);
    fields.set(number, [...(fields.get(number) ?? []), value]);
  }
  return fields;
}

const messages = (fields: Message, number: number): Message[] =>
  (fields.get(number) ?? []).map((it) => message(it as Uint8Array));
const one = (fields: Message, number: number): Message => message((fields.get(number)?.[0] ?? new Uint8Array()) as Uint8Array);
const texts = (fields: Message, number: number): string[] =>
  (fields.get(number) ?? []).map((it) => new TextDecoder().decode(it as Uint8Array));
const text = (fields: Message, number: number): string => texts(fields, number)[0] ?? '';
const integer = (fields: Message, number: number): number => (fields.get(number)?.[0] as number | undefined) ?? 0;

// Field numbers are those of onnx.proto.
const ATTRIBUTE = { FLOAT: 1, INT: 2, STRING: 3 } as const;

function attribute(fields: Message): [string, number | string] {
  const type = integer(fields, 20);
  const name = text(fields, 1);
  if (type === ATTRIBUTE.FLOAT) return [name, integer(fields, 2)];
  if (type === ATTRIBUTE.INT) return [name, integer(fields, 3)];
  if (type === ATTRIBUTE.STRING) return [name, text(fields, 4)];
  throw new RangeError(`attribute ${name}`);
}

function port(fields: Message): Port {
  const tensor = one(one(fields, 2), 1);
  const dims = tensor.has(2) ? messages(one(tensor, 2), 1) : undefined;
  const shape = dims?.map((it) => (it.has(1) ? integer(it, 1) : text(it, 2)));
  return { name: text(fields, 1), type: integer(tensor, 1), shape };
}

/** Returns the model in these bytes if it has a single node. */
export function readModel(bytes: Uint8Array): Model | undefined {
  try {
    const graph = one(message(bytes), 7);
    const [node, ...more] = messages(graph, 1);
    if (!node || more.length || graph.has(5)) return undefined;
    return {
      node: {
        operator: text(node, 4),
        inputs: texts(node, 1),
        outputs: texts(node, 2),
        attributes: new Map(messages(node, 5).map(attribute)),
      },
      inputs: messages(graph, 11).map(port),
      outputs: messages(graph, 12).map(port),
    };
  } catch {
    return undefined;
  }
}
