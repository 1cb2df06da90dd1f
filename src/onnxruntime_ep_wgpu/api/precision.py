"""A model with smaller numbers: halves for its values, or integers of 4 or 8 bits for the weights of its products.

In: an ONNX model and the inputs of one run. Out: the model written anew, and what that run differs by. Invariants: inputs and
outputs keep their types; what would overflow as a half in that run stays float32. Both are measured with ONNX Runtime's CPU
provider, and done by its own tools (`onnxruntime.transformers.float16`, `onnxruntime.quantization`).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import OptionError, ProgramError

LARGEST = float(np.finfo(np.float16).max)
HEADROOM = 2  # of other inputs than the one that was looked at
BLOCK = 32  # weights that share a scale


@dataclass(frozen=True)
class Precision:
    """`weight_bits` is 4 or 8, or None for weights as they are."""

    halves: bool = False
    weight_bits: int | None = None

    def __post_init__(self) -> None:
        if self.weight_bits not in (None, 4, 8):
            raise OptionError(f"weights take 4 or 8 bits, not {self.weight_bits}")

    def __bool__(self) -> bool:
        return self.halves or self.weight_bits is not None


@dataclass(frozen=True)
class OutputError:
    """What an output of one run, of numbers of any type, differs by from float32: `largest` and the root mean square `rms` of
    the differences, and the largest absolute value of the output itself."""

    output: str
    largest: float
    rms: float
    scale: float


@dataclass(frozen=True)
class Reduced:
    """`kept` are nodes that stay float32, because a value of theirs would overflow; `quantised` counts products."""

    path: Path
    errors: tuple[OutputError, ...]
    kept: tuple[str, ...]
    quantised: int


def reduce(model: Path, precision: Precision, samples: Mapping[str, Any], folder: Path) -> Reduced:
    """Writes the model with this precision to `folder`. `samples` has an array for each input. Raises ProgramError."""
    import onnx

    original = _load(model)
    names = [it.name for it in original.graph.output]
    exact = _run(original, names, samples)
    _name_nodes(original)
    changed, quantised = original, 0
    if precision.weight_bits is not None:
        changed, quantised = _quantised(original, precision.weight_bits)
        if not quantised:
            raise OptionError(
                f"{model} has no product whose weights could take {precision.weight_bits} bits: that is for MatMul with constant"
                " weights; leave it out"
            )
    kept: tuple[str, ...] = ()
    if precision.halves:
        values = _float_values(changed, samples)
        kept = _overflowing(changed, values, samples)
        changed = _halved(changed, kept, values)
    rounded = _run(_rounding(changed), names, samples) if precision.halves else None
    path = folder / model.name
    onnx.save(changed, path, save_as_external_data=True, location=f"{model.name}.data", size_threshold=1024)
    found = rounded if rounded is not None else _run(path, names, samples)
    errors = tuple(_error(name, a, b) for name, a, b in zip(names, exact, found, strict=True) if _is_number(a))
    if errors and not any(np.size(it) for it in exact):
        raise OptionError(f"the samples make empty outputs, which tell no error: {', '.join(names)}; give other sizes")
    return Reduced(path, errors, kept, quantised)


def _load(path: Path) -> Any:
    import onnx

    if path.suffix == ".ort":
        raise OptionError(
            f"{path} is in ONNX Runtime's format, in which weights cannot be made smaller: pass the ONNX model"
        )
    try:
        return onnx.load(path)
    except Exception as error:
        raise ProgramError(f"{path} cannot be read as an ONNX model: {error}") from error


def _name_nodes(model: Any) -> None:
    """What stays float32 is told by name."""
    taken = {node.name for node in model.graph.node}
    for k, node in enumerate(model.graph.node):
        if not node.name:
            node.name = next(
                it for it in (f"{node.op_type}_{k + more}" for more in range(len(taken) + 1)) if it not in taken
            )
            taken.add(node.name)


def _is_float(array: Any) -> bool:
    return bool(np.issubdtype(np.asarray(array).dtype, np.floating))


def _is_number(array: Any) -> bool:
    return np.asarray(array).dtype.kind in "fiub"


def _error(name: str, exact: Any, found: Any) -> OutputError:
    a, b = np.asarray(exact, np.float64), np.asarray(found, np.float64)
    if not a.size:
        return OutputError(name, 0.0, 0.0, 0.0)
    difference = np.where(a == b, 0.0, a - b)  # equal infinities differ by nothing
    return OutputError(
        name, float(np.abs(difference).max()), float(np.sqrt(np.mean(difference**2))), float(np.abs(a).max())
    )


def _rounding(model: Any) -> Any:
    """The same with two Identity nodes behind each half that a node makes: ONNX Runtime's CPU provider calculates in float32 and
    leaves out what rounds in between, but for nodes that take halves as they are, unless such a one stands alone."""
    import onnx

    halves = {it.name for it in model.graph.value_info if it.type.tensor_type.elem_type == onnx.TensorProto.FLOAT16}
    found = onnx.ModelProto()
    found.CopyFrom(model)
    del found.graph.node[:]
    for node in model.graph.node:
        made = found.graph.node.add()
        made.CopyFrom(node)
        for k, name in enumerate(node.output):
            if name in halves:
                before, between = f"{name} before rounding", f"{name} rounded"
                made.output[k] = before
                found.graph.node.append(onnx.helper.make_node("Identity", [before], [between]))
                found.graph.node.append(onnx.helper.make_node("Identity", [between], [name]))
    return found


def _run(model: Any, names: list[str], samples: Mapping[str, Any]) -> list[Any]:
    import onnxruntime as ort

    settings = ort.SessionOptions()
    settings.log_severity_level = 3
    # Values that are looked at must be those of the model's own nodes, Identity included.
    settings.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    source = str(model) if isinstance(model, Path) else _serialised(model)
    try:
        session = ort.InferenceSession(source, settings, providers=["CPUExecutionProvider"])
        found: list[Any] = session.run(names, dict(samples))
    except Exception as error:
        raise ProgramError(f"a sample run on the CPU failed: {error}") from error
    return found


def _serialised(model: Any) -> bytes:
    try:
        return bytes(model.SerializeToString())
    except Exception as error:
        raise ProgramError(f"the model is too large for this: export it without smaller numbers ({error})") from error


# ---- halves


def _float_values(model: Any, samples: Mapping[str, Any]) -> dict[str, Any]:
    """Every float32 value of the sample run, by name."""
    import onnx

    probed = onnx.ModelProto()
    probed.CopyFrom(model)
    outputs = {it.name for it in model.graph.output}
    made = list(dict.fromkeys(name for node in model.graph.node for name in node.output if name))
    probed.graph.output.extend(onnx.ValueInfoProto(name=name) for name in made if name not in outputs)
    found = dict(zip(made, _run(probed, made, samples), strict=True))
    return {name: it for name, it in found.items() if isinstance(it, np.ndarray) and it.dtype == np.float32}


def _overflowing(model: Any, values: Mapping[str, Any], samples: Mapping[str, Any]) -> tuple[str, ...]:
    """Names of the nodes that read or write a value, or a weight, which a half cannot hold with room to spare."""
    from onnx import numpy_helper

    weights = {it.name: numpy_helper.to_array(it) for it in model.graph.initializer if it.data_type == 1}
    inputs = {name: array for name, array in samples.items() if _is_float(array)}
    large = {name for name, array in {**values, **weights, **inputs}.items() if _largest(array) > LARGEST / HEADROOM}
    nodes = model.graph.node
    return tuple(it.name for it in nodes if large & {*it.input, *it.output} and it.op_type != "Constant")


def _largest(array: Any) -> float:
    """Of what is finite: an infinity is one in halves, too. The lowest float32 stands for it in masks."""
    found = np.abs(np.asarray(array, np.float64))
    found = found[np.isfinite(found) & (found < float(np.finfo(np.float32).max) / HEADROOM)]
    return float(found.max()) if found.size else 0.0


def _halved(model: Any, kept: tuple[str, ...], values: Mapping[str, Any]) -> Any:
    import onnx
    from onnxruntime.transformers.float16 import convert_float_to_float16

    # Types of what shape inference does not know, operators of other domains.
    for it in model.graph.output:
        if it.name in values:
            it.type.tensor_type.elem_type = onnx.TensorProto.FLOAT
    known = {it.name for it in (*model.graph.value_info, *model.graph.output)}
    model.graph.value_info.extend(
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [None] * array.ndim)
        for name, array in values.items()
        if name not in known
    )
    with _quietly():
        halved = convert_float_to_float16(model, keep_io_types=True, node_block_list=list(kept))
    _join(halved.graph)
    return halved


def _join(graph: Any) -> None:
    """Lets a node that stays float32 read what another one wrote as it is: there and back through halves it would overflow."""
    from onnx import TensorProto

    def casts(to: int) -> dict[str, str]:
        """Results of casts to a type, and what is cast."""
        return {
            it.output[0]: it.input[0]
            for it in graph.node
            if it.op_type == "Cast" and next(a.i for a in it.attribute if a.name == "to") == to
        }

    narrowed, widened = casts(TensorProto.FLOAT16), casts(TensorProto.FLOAT)
    wide = {out: narrowed[name] for out, name in widened.items() if name in narrowed}
    for node in graph.node:
        for k, name in enumerate(node.input):
            node.input[k] = wide.get(name, name)


# ---- weights


def _quantised(model: Any, bits: int) -> tuple[Any, int]:
    with _quietly():
        from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

        quantizer = MatMulNBitsQuantizer(model, bits=bits, block_size=BLOCK, is_symmetric=True)
        quantizer.process()
    found = quantizer.model.model
    return found, sum(node.op_type == "MatMulNBits" for node in found.graph.node)


@contextmanager
def _quietly() -> Iterator[None]:
    """These tools set up logging for the whole process, and tell of every weight that is small."""
    import warnings

    root = logging.getLogger()
    handlers, level, disabled = root.handlers[:], root.level, logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
        logging.disable(disabled)
