"""Nodes that strangers may have made: one node of every operator with a kernel, of both domains, with some of it changed.

In: a number. Out: a model of one node and what it is fed. Invariant: a number gives the same model in every process, and operators
take turns, so a range of numbers has as many cases of each.

    python -m tests.fuzz.nodes --count 20000                  # lowered in this process: seconds per thousand
    python -m tests.fuzz.worker node:17                        # one as a session, compared with the CPU provider
"""

from __future__ import annotations

import argparse
import faulthandler
import logging
import random
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx import helper, numpy_helper
from onnx.backend.test.loader import load_model_tests
from onnxruntime.capi.onnxruntime_pybind11_state import get_all_operator_schema

from onnxruntime_ep_wgpu.compiler.lower.lower import attempt
from onnxruntime_ep_wgpu.compiler.lower.ops import registry
from onnxruntime_ep_wgpu.errors import Fault, InternalError
from onnxruntime_ep_wgpu.program.target import Target
from tests.ops import contributed, enumerated
from tests.ops.enumerated import MICROSOFT

NUMBERS = (
    -(2**63),
    -(2**31),
    -1000,
    -3,
    -2,
    -1,
    0,
    1,
    2,
    3,
    4,
    5,
    7,
    8,
    16,
    255,
    65536,
    2**31 - 1,
    2**31,
    2**62,
    2**63 - 1,
)
REALS = (float("nan"), float("inf"), -float("inf"), -1.0, 0.0, 0.5, 1e30, -1e-30)
TEXTS = (
    b"",
    b"x",
    b"\xff\xfe",
    b"a\0b",
    b"NONE",
    b"none",
    b"linear",
    b"Linear ",
    b"SAME_UPPER",
    b"valid",
    b"{0}",
    b"l" * 5000,
)
TYPES = (
    "FLOAT",
    "FLOAT16",
    "BFLOAT16",
    "DOUBLE",
    "INT64",
    "INT32",
    "UINT8",
    "INT8",
    "UINT64",
    "INT16",
    "BOOL",
    "INT4",
    "STRING",
)
EXTENTS = (0, 1, 1, 2, 3, 4, 7, 16, 2**31, 2**62)
NAMES = (b"\xff\xfe!", b"a\0b", b"", b"{0}", b"n" * 3000, b"\xed\xa0\x80")
EQUATIONS = (b"", b"ij", b"ij->", b"ij,jk->ki", b"...i->i...", b"I,i", b"->", b",", b"ij->kk")
"""ONNX Runtime itself never comes to the end of one with any other character before the arrow."""
PLACEHOLDER = "zzPLACEHOLDERzz"
"""In a model as text, where bytes that are no text stand in it at last."""
SECONDS = 30


@dataclass(frozen=True)
class Base:
    """A node that is well formed, with values for its inputs; those of `constants` are in the model."""

    model: onnx.ModelProto
    feeds: dict[str, np.ndarray]


@cache
def bases() -> tuple[tuple[Base, ...], ...]:
    """By operator: the examples of com.microsoft and ai.onnx.ml, those with enumerated attributes, and node cases of onnx."""
    found: dict[str, list[Base]] = {}
    examples = (*contributed.EXAMPLES, *(it for it in enumerated.EXAMPLES if it.domain != MICROSOFT))
    for it in examples:
        found.setdefault(f"{it.domain}.{it.op}", []).append(Base(it.model(), it.feeds()))
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        suite = load_model_tests(kind="node")
    for case in suite:
        if case.model is None or len(case.model.graph.node) != 1 or not case.data_sets:
            continue
        (node,) = case.model.graph.node
        if registry.declared(node.op_type, node.domain) is None or node.domain:
            continue
        if node.op_type == "MaxUnpool" and len(node.input) > 2:
            continue  # the CPU provider lays it out otherwise (docs/conformance.md)
        values = case.data_sets[0][0]
        arrays = [np.asarray(it) if not isinstance(it, list) else None for it in values]
        if len(arrays) == len(case.model.graph.input) and all(it is not None and it.dtype != object for it in arrays):
            names = [it.name for it in case.model.graph.input]
            found.setdefault(f".{node.op_type}", []).append(Base(case.model, dict(zip(names, arrays, strict=True))))
    return tuple(tuple(it) for _, it in sorted(found.items()))


@cache
def _attributes(op_type: str, domain: str) -> tuple[tuple[str, str], ...]:
    """Names and kinds of the attributes of all versions of an operator."""
    found = {
        (name, str(it.type).rpartition(".")[2])
        for schema in get_all_operator_schema()
        if schema.name == op_type and schema.domain in {domain, domain or "ai.onnx"}
        for name, it in schema.attributes.items()
    }
    return tuple(sorted(found))


@dataclass
class Case:
    """A model that is changed in place."""

    model: onnx.ModelProto
    feeds: dict[str, np.ndarray]
    chance: random.Random
    bytes_of_placeholder: bytes = b""

    @property
    def node(self) -> onnx.NodeProto:
        return self.model.graph.node[0]


def make(number: int) -> tuple[bytes, dict[str, np.ndarray]]:
    """The model of a number, and feeds for its inputs."""
    every = bases()
    chance = random.Random(f"node:{number}")
    base = chance.choice(every[number % len(every)])
    model = onnx.ModelProto()
    model.CopyFrom(base.model)
    case = Case(model, dict(base.feeds), chance)
    if chance.random() < 0.5:
        _constants(case)
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        chance.choice(CHANGES)(case)
    for output in model.graph.output:
        output.type.tensor_type.ClearField("shape")
    data = model.SerializeToString()
    if case.bytes_of_placeholder or PLACEHOLDER.encode() in data:
        raw = case.bytes_of_placeholder.ljust(len(PLACEHOLDER), b"_")[: len(PLACEHOLDER)]
        data = data.replace(PLACEHOLDER.encode(), raw)
    return data, case.feeds


# ---- changes


def _attribute(case: Case) -> None:
    """Another value for an attribute, one that the node has or one of its operator."""
    node, chance = case.node, case.chance
    given = {it.name: it for it in node.attribute}
    known = _attributes(node.op_type, node.domain)
    if not known:
        return
    name, kind = chance.choice(known)
    if chance.random() < 0.15:
        kind = chance.choice(("INT", "FLOAT", "STRING", "INTS", "FLOATS", "STRINGS", "TENSOR"))
    if chance.random() < 0.08:
        name, kind = chance.choice((("nonsense", kind), (f"{name}_", kind)))
    old = given.get(name)
    value = chance.choice(EQUATIONS) if (name, kind) == ("equation", "STRING") else _value(kind, old, chance)
    if value is None:
        return
    if old is not None:
        node.attribute.remove(old)
    made = helper.make_attribute(name, value, attr_type=getattr(onnx.AttributeProto, kind))
    node.attribute.append(made)


def _value(kind: str, old: onnx.AttributeProto | None, chance: random.Random) -> Any:
    if kind == "INT":
        return chance.choice(NUMBERS)
    if kind == "FLOAT":
        return chance.choice(REALS)
    if kind == "STRING":
        return chance.choice(TEXTS)
    if kind in ("INTS", "FLOATS", "STRINGS"):
        choices: Any = {"INTS": NUMBERS, "FLOATS": REALS, "STRINGS": TEXTS}[kind]
        values: list[Any] = list(getattr(old, kind.lower())) if old is not None and getattr(old, kind.lower()) else []
        what = chance.randrange(4)
        if what == 0 and values:
            values[chance.randrange(len(values))] = chance.choice(choices)
        elif what == 1 and values:
            del values[-1]
        elif what == 2:
            values.append(chance.choice(choices))
        else:
            values = [chance.choice(choices) for _ in range(chance.choice((0, 1, 2, 4, 9)))]
        return values
    if kind == "TENSOR":
        array = np.array(chance.choice(NUMBERS)).reshape(chance.choice(((), (1,), (1, 1))))
        return numpy_helper.from_array(array.astype(chance.choice((np.int64, np.float32, np.bool_))))
    return None


def _no_attribute(case: Case) -> None:
    if case.node.attribute:
        del case.node.attribute[case.chance.randrange(len(case.node.attribute))]


def _inputs(case: Case) -> None:
    """Inputs that are missing, blank, exchanged, given twice, or too many."""
    names, chance = case.node.input, case.chance
    if not names:
        return
    at = chance.randrange(len(names))
    what = chance.randrange(5)
    if what == 0:
        del names[at]
    elif what == 1:
        names[at] = ""
    elif what == 2:
        other = chance.randrange(len(names))
        names[at], names[other] = names[other], names[at]
    elif what == 3:
        names[at] = chance.choice(names)
    else:
        names.extend([""] * chance.randrange(3) + [names[at]])


def _further_input(case: Case) -> None:
    """An optional input that the node has not, of some shape."""
    chance = case.chance
    name = f"further{len(case.node.input)}"
    array = np.zeros(
        [chance.choice((1, 2, 3, 4)) for _ in range(chance.randrange(5))],
        chance.choice((np.float32, np.int64, np.int32, np.uint8)),
    )
    case.node.input.extend([""] * chance.choice((0, 0, 1, 2, 4)) + [name])
    _give(case, name, array)


def _give(case: Case, name: str, array: np.ndarray) -> None:
    if case.chance.random() < 0.5:
        case.model.graph.initializer.append(numpy_helper.from_array(array, name))
    else:
        kind = helper.np_dtype_to_tensor_dtype(array.dtype)
        case.model.graph.input.append(helper.make_tensor_value_info(name, kind, array.shape))
        case.feeds[name] = array


def _shape(case: Case) -> None:
    """Another rank, other extents, free ones, none."""
    chance, inputs = case.chance, case.model.graph.input
    if not inputs:
        return
    info = chance.choice(inputs)
    tensor = info.type.tensor_type
    array = case.feeds.get(info.name)
    if array is None or not tensor.HasField("shape"):
        return
    shape = list(array.shape)
    what = chance.randrange(7)
    if what == 0 and shape:
        shape.pop(chance.randrange(len(shape)))
    elif what == 1:
        shape.insert(chance.randrange(len(shape) + 1), chance.choice((0, 1, 2, 3)))
    elif what == 2 and shape:
        shape[chance.randrange(len(shape))] = chance.choice(EXTENTS)
    elif what == 3:
        shape = []
    elif what == 4:
        tensor.ClearField("shape")
        return
    else:
        for k, dim in enumerate(tensor.shape.dim):
            if chance.random() < 0.7:
                dim.Clear()
                if what == 5:
                    dim.dim_param = chance.choice((f"{info.name}_{k}", "n", "?", "-1", "a b"))
        return
    tensor.ClearField("shape")
    tensor.shape.SetInParent()
    for extent in shape:
        tensor.shape.dim.add().dim_value = extent
    if np.prod([float(max(it, 1)) for it in shape]) > 1 << 22:
        case.feeds.pop(info.name)
    else:
        case.feeds[info.name] = np.resize(array, shape).astype(array.dtype)


def _type(case: Case) -> None:
    chance, inputs = case.chance, case.model.graph.input
    if not inputs:
        return
    info = chance.choice(inputs)
    code = getattr(onnx.TensorProto, chance.choice(TYPES))
    info.type.tensor_type.elem_type = code
    array = case.feeds.get(info.name)
    if array is not None:
        dtype = helper.tensor_dtype_to_np_dtype(code)
        with np.errstate(all="ignore"):
            whole = array.astype(np.float64)
            case.feeds[info.name] = whole.astype(dtype) if dtype.kind not in "OUS" else whole.astype(str).astype(object)


def _constants(case: Case) -> None:
    """Some inputs become constants of the model, or constants inputs."""
    graph, chance = case.model.graph, case.chance
    for info in list(graph.input):
        if (
            chance.random() < 0.5
            and info.name in case.feeds
            and case.feeds[info.name].size < 4096
            and case.feeds[info.name].dtype != object
        ):
            graph.initializer.append(numpy_helper.from_array(case.feeds.pop(info.name), info.name))
            graph.input.remove(info)
    for tensor in list(graph.initializer):
        if chance.random() < 0.15:
            array = numpy_helper.to_array(tensor)
            graph.initializer.remove(tensor)
            graph.input.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, array.shape))
            case.feeds[tensor.name] = array


def _constant(case: Case) -> None:
    """Another value, shape or type of a constant."""
    graph, chance = case.model.graph, case.chance
    if not graph.initializer:
        _constants(case)
    if not graph.initializer:
        return
    tensor = chance.choice(graph.initializer)
    array = numpy_helper.to_array(tensor).copy()
    what = chance.randrange(5)
    if what < 2 and array.size and array.dtype.kind in "iuf":
        at = chance.randrange(array.size)
        if array.dtype.kind == "f":
            array.reshape(-1)[at] = chance.choice(REALS[:-1]) if array.dtype.itemsize > 2 else 0
        else:
            limits = np.iinfo(array.dtype)
            array.reshape(-1)[at] = min(max(chance.choice(NUMBERS), limits.min), limits.max)
    elif what == 2:
        array = array.reshape(-1)[: chance.randrange(array.size + 1)]
    elif what == 3:
        array = (
            array.reshape((1,) * chance.choice((1, 1, 2, 5)) + array.shape)
            if chance.random() < 0.7
            else array.reshape(-1)
        )
    else:
        with np.errstate(all="ignore"):
            array = array.astype(
                chance.choice((np.float32, np.float16, np.int64, np.int32, np.uint8, np.bool_, np.float64))
            )
    tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))


def _outputs(case: Case) -> None:
    names, chance = case.node.output, case.chance
    what = chance.randrange(4)
    if what == 0:
        names.append(f"more{len(names)}")
        if chance.random() < 0.5:
            case.model.graph.output.append(helper.make_tensor_value_info(names[-1], onnx.TensorProto.FLOAT, None))
    elif what == 1 and len(names) > 1:
        gone = names.pop()
        for it in [it for it in case.model.graph.output if it.name == gone]:
            case.model.graph.output.remove(it)
    elif what == 2 and len(names) > 1:
        at = chance.randrange(len(names))
        for it in [it for it in case.model.graph.output if it.name == names[at]]:
            case.model.graph.output.remove(it)
        names[at] = ""
    else:
        names.extend(["", "", "behind"])


def _names(case: Case) -> None:
    """A name that is no text, or a strange one."""
    graph, chance = case.model.graph, case.chance
    case.bytes_of_placeholder = chance.choice(NAMES)
    what = chance.randrange(5)
    if what == 0:
        case.node.name = PLACEHOLDER
    elif what == 1 and graph.input:
        info = chance.choice(graph.input)
        case.feeds.pop(info.name, None)
        for k, name in enumerate(case.node.input):
            if name == info.name:
                case.node.input[k] = PLACEHOLDER
        info.name = PLACEHOLDER
    elif what == 2 and graph.output:
        info = chance.choice(graph.output)
        for k, name in enumerate(case.node.output):
            if name == info.name:
                case.node.output[k] = PLACEHOLDER
        info.name = PLACEHOLDER
    elif what == 3:
        helper.set_model_props(case.model, {PLACEHOLDER: PLACEHOLDER})
    elif graph.input:
        dims = chance.choice(graph.input).type.tensor_type.shape.dim
        if dims:
            dim = chance.choice(dims)
            dim.Clear()
            dim.dim_param = PLACEHOLDER


def _opset(case: Case) -> None:
    for it in case.model.opset_import:
        if it.domain == case.node.domain or it.domain in ("", "ai.onnx"):
            it.version = case.chance.choice((1, 7, 8, 9, 10, 11, 12, 13, 14, 16, 17, 18, 19, 20, 21, 22, 23, 24))


CHANGES: tuple[Callable[[Case], None], ...] = (
    _attribute, _attribute, _attribute, _no_attribute, _inputs, _further_input, _shape, _shape, _type, _constant, _constant,
    _outputs, _names, _opset,
)  # fmt: skip


# ---- what becomes of them


def lowered(number: int) -> str:
    """What becomes of a case without ONNX Runtime: `runs`, `refused`, `unread`, or `defect: ...`."""
    data, _ = make(number)
    try:
        model = onnx.load_model_from_string(data)
    except Exception:  # of protobuf; `model_file.py` says it in words of ours
        return "unread"
    return outcome(model)


def outcome(proto: onnx.ModelProto) -> str:
    """What becomes of a model."""
    try:
        model = ir.from_proto(proto)
        opsets = dict(model.graph.opset_imports)
    except Exception:  # of onnx_ir, its own
        return "unread"
    try:
        reasons = attempt(model.graph, opsets, Target()).reasons
    except Exception as error:
        return f"defect: {traceback.format_exc().strip().splitlines()[-3].strip()} {type(error).__name__}: {error}"
    for reason in reasons:
        if isinstance(reason, Fault) and isinstance(reason.error, InternalError):
            return f"defect: {reason}"
    return "refused" if any(reasons) else "runs"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.nodes", description="Lowers nodes that are changed.")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0, metavar="N")
    chosen = parser.parse_args()
    counted: Counter[str] = Counter()
    defects: Counter[str] = Counter()
    bases()
    begin = time.monotonic()
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)  # onnx_ir tells of every text that is none
    for number in range(chosen.first, chosen.first + chosen.count):
        faulthandler.dump_traceback_later(SECONDS, exit=True)
        found = lowered(number)
        faulthandler.cancel_dump_traceback_later()
        counted[found.partition(":")[0]] += 1
        if found.startswith("defect"):
            print(f"{number}: {found}", flush=True)
            defects[found] += 1
    print(f"{dict(counted)} in {time.monotonic() - begin:.0f} s", file=sys.stderr)
    return 1 if defects else 0


if __name__ == "__main__":
    sys.exit(main())
