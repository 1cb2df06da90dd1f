"""Reduces the precision of a model: float16 values, or weights of products as 4 or 8 bit integers.

In: an ONNX model and the inputs of one run. Out: the converted model, and the errors of its outputs in that run. Invariants: inputs
and outputs keep their types, and values that would overflow float16 in that run stay float32. Errors and overflow are measured
with ONNX Runtime's CPU provider; weights are quantised by its own tools (`onnxruntime.quantization`). Values that are finite in
float32 stay finite, or nothing is written.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import ModelError, OptionError, ProgramError
from ..records import dataclass
from ..writing import errors_about
from .external_data import check_external_data, follow_links
from .halves import LARGEST, Halved, halved
from .model_file import plain_settings

HEADROOM = 2  # safety factor for inputs other than the samples
MASKED = (
    float(np.finfo(np.float32).max) / HEADROOM
)  # values from here on represent infinity, as the lowest float32 in masks
BLOCK = 32  # weights per quantisation scale


@dataclass(frozen=True)
class Precision:
    """`halves` selects float16. `weight_bits` is 4 or 8, or None to leave the weights unchanged."""

    halves: bool = False
    weight_bits: int | None = None

    def __post_init__(self) -> None:
        if self.weight_bits not in (None, 4, 8):
            raise OptionError(f"weights take 4 or 8 bits, not {self.weight_bits}")

    def __bool__(self) -> bool:
        return self.halves or self.weight_bits is not None


@dataclass(frozen=True)
class OutputError:
    """The error of a numeric output of one run against float32.

    `largest` and `rms` are the largest and the root mean square difference. `scale` is the output's largest absolute value."""

    output: str
    largest: float
    rms: float
    scale: float


@dataclass(frozen=True)
class Reduced:
    """`kept` are nodes that stay float32, because one of their values would overflow. `quantised` is the number of products."""

    errors: tuple[OutputError, ...]
    kept: tuple[str, ...]
    quantised: int


@dataclass(frozen=True)
class ReducedModel(Reduced):
    """The same, with the path of the converted model."""

    path: Path


def reduce(model: Path, precision: Precision, samples: Mapping[str, Any], folder: Path) -> ReducedModel:
    """Writes the model with this precision to `folder`. `samples` has an array for each input.

    Raises OptionError if the precision cannot apply, ModelError for external data, ProgramError and WriteError."""
    import onnx

    original = _load(model)
    names = [it.name for it in original.graph.output]
    exact = _run(original, names, samples)
    if exact and not any(np.size(it) for it in exact):
        raise OptionError(f"the samples make empty outputs, which show no error: {', '.join(names)}; give other sizes")
    _prepare(original)
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
        changed, kept, found = _with_halves(changed, names, samples)
    path = folder / model.name
    with errors_about(path):
        onnx.save(changed, path, save_as_external_data=True, location=f"{model.name}.data", size_threshold=1024)
    if not precision.halves:
        found = _run(path, names, samples)
    for name, a, b in zip(names, exact, found, strict=True):
        if _became_nonfinite(a, b):
            raise ProgramError(
                f"the output {name!r} is finite in float32, but not with smaller numbers: export the model without them, or"
                " give realistic inputs (--input of the command, `samples` in Python)"
            )
    errors = tuple(_error(name, a, b) for name, a, b in zip(names, exact, found, strict=True) if _is_number(a))
    return ReducedModel(errors, kept, quantised, path)


def _load(path: Path) -> Any:
    import onnx

    if path.suffix == ".ort":
        raise OptionError(
            f"{path} is in ONNX Runtime's format, in which weights cannot be made smaller: pass the ONNX model"
        )
    try:
        model = onnx.load(path, load_external_data=False)
        check_external_data(path, model)
        onnx.load_external_data_for_model(model, str(follow_links(model, path)))
        return model
    except ModelError:
        raise
    except Exception as error:
        raise ProgramError(f"{path} cannot be read as an ONNX model: {error}") from error


def _prepare(model: Any) -> None:
    """Names every node uniquely, so that it can be selected to stay float32, and turns Constant nodes into initializers."""
    from onnx import helper, numpy_helper

    graph, nodes = model.graph, list(model.graph.node)
    taken = {node.name for node in nodes}
    del graph.node[:]
    for k, node in enumerate(nodes):
        if not node.name:
            names = (f"{node.op_type}_{k + more}" for more in range(len(taken) + 1))
            node.name = next(it for it in names if it not in taken)
            taken.add(node.name)
        name, value = "", None
        if node.op_type == "Constant":
            name, value = node.attribute[0].name, helper.get_attribute_value(node.attribute[0])
        if name == "value":
            graph.initializer.add().CopyFrom(value)
        elif name in ("value_float", "value_floats", "value_int", "value_ints"):
            array = np.array(value, np.float32 if "float" in name else np.int64)
            graph.initializer.append(numpy_helper.from_array(array))
        else:
            graph.node.append(node)
            continue
        graph.initializer[-1].name = node.output[0]


def _is_float(array: Any) -> bool:
    return bool(np.issubdtype(np.asarray(array).dtype, np.floating))


def _is_number(array: Any) -> bool:
    return np.asarray(array).dtype.kind in "fiub"


def _error(name: str, exact: Any, found: Any) -> OutputError:
    a, b = np.asarray(exact, np.float64), np.asarray(found, np.float64)
    if not a.size:
        return OutputError(name, 0.0, 0.0, 0.0)
    difference = np.where(a == b, 0.0, a - b)  # equal infinities have difference 0
    return OutputError(
        name, float(np.abs(difference).max()), float(np.sqrt(np.mean(difference**2))), float(np.abs(a).max())
    )


def _rounding(changed: Halved) -> Any:
    """Returns the model with two Identity nodes after each half that a node writes, to force rounding.

    ONNX Runtime's CPU provider calculates in float32 and removes casts in between, except before nodes with a float16 kernel. It
    removes those too if such a node stands alone."""
    import onnx

    found = onnx.ModelProto()
    found.CopyFrom(changed.model)
    del found.graph.node[:]
    for node in changed.model.graph.node:
        made = found.graph.node.add()
        made.CopyFrom(node)
        for k, name in enumerate(node.output):
            if name in changed.halves:
                before, between = f"{name} before rounding", f"{name} rounded"
                made.output[k] = before
                found.graph.node.append(onnx.helper.make_node("Identity", [before], [between]))
                found.graph.node.append(onnx.helper.make_node("Identity", [between], [name]))
    return found


def _run(model: Any, names: list[str], samples: Mapping[str, Any]) -> list[Any]:
    import onnxruntime as ort

    # Without graph optimisation, so that all probed values exist, those of Identity included.
    settings = plain_settings()
    source = str(model) if isinstance(model, Path) else _serialised(model)
    try:
        session = ort.InferenceSession(source, settings, providers=["CPUExecutionProvider"])
        found: list[Any] = session.run(names, dict(samples))
    except Exception as error:
        raise ProgramError(
            f"the run on the CPU provider that checks smaller numbers failed: {error}; give inputs that the model accepts"
            " (--input, --dim and --shape of the command, `samples` in Python), or export it without smaller numbers"
        ) from error
    return found


def _serialised(model: Any) -> bytes:
    try:
        return bytes(model.SerializeToString())
    except Exception as error:
        raise ProgramError(f"the model is too large for this: export it without smaller numbers ({error})") from error


# ---- halves


def _with_halves(model: Any, outputs: list[str], samples: Mapping[str, Any]) -> tuple[Any, tuple[str, ...], list[Any]]:
    """Returns the float16 model, the nodes that stay float32, and the outputs of the sample run with each value rounded."""
    from onnx import numpy_helper

    tensors = {name: it for name, it in _values(model, samples).items() if isinstance(it, np.ndarray)}
    tensors |= {it.name: numpy_helper.to_array(it) for it in model.graph.initializer}
    tensors |= {name: np.asarray(it) for name, it in samples.items()}
    floats = {name: it for name, it in tensors.items() if it.dtype == np.float32}
    for node in model.graph.node:
        if node.op_type == "Cast" and node.input[0] in floats and node.output[0] in floats:
            node.op_type = "Identity"
            del node.attribute[:]
    kept = _overflowing(model, floats)
    while True:
        changed = halved(model, floats, tensors.keys() - floats.keys(), kept)
        try:
            found = _values(_rounding(changed), samples)
        except ProgramError as error:  # some CPU kernels refuse float16 only at run time
            refused = {node.name for node in model.graph.node if f"'{node.name}'" in str(error)} - kept
            if not refused:
                raise
            kept |= refused
            continue
        if more := _not_finite(model, changed, floats, found) - kept:
            kept |= more
            continue
        names = tuple(node.name for node in model.graph.node if node.name in kept)
        return changed.model, names, [found[it] if it in found else tensors[it] for it in outputs]


def _values(model: Any, samples: Mapping[str, Any]) -> dict[str, Any]:
    """Returns every value that a node writes in the sample run, by name."""
    import onnx

    probed = onnx.ModelProto()
    probed.CopyFrom(model)
    outputs = {it.name for it in model.graph.output}
    made = list(dict.fromkeys(name for node in model.graph.node for name in node.output if name))
    probed.graph.output.extend(onnx.ValueInfoProto(name=name) for name in made if name not in outputs)
    return dict(zip(made, _run(probed, made, samples), strict=True))


def _overflowing(model: Any, floats: Mapping[str, Any]) -> set[str]:
    """Returns the names of nodes with an operand too large for float16 with HEADROOM."""
    large = {name for name, array in floats.items() if _largest(array) > LARGEST / HEADROOM}
    return {it.name for it in model.graph.node if large & {*it.input, *it.output}}


def _not_finite(model: Any, changed: Halved, floats: Mapping[str, Any], found: Mapping[str, Any]) -> set[str]:
    """Returns the nodes where infinities or NaN first appear, and the producers of their inputs.

    The producers matter because a divisor may have become 0 in float16."""
    halves = {name: half for half, name in changed.halves.items()}
    outputs = {it.name for it in model.graph.output}
    bad = {
        name
        for name, exact in floats.items()
        if any(
            _became_nonfinite(exact, found.get(it), np.inf if name in outputs else MASKED)
            for it in (name, halves.get(name, ""))
        )
    }
    makers = {name: node.name for node in model.graph.node for name in node.output}
    first = [node for node in model.graph.node if bad & {*node.output} and not bad & {*node.input}]
    read = {makers[name] for node in first for name in node.input if name in makers}
    return {node.name for node in first} | read


def _largest(array: Any) -> float:
    """Returns the largest finite magnitude. Infinities are ignored, because float16 represents them too."""
    found = np.abs(np.asarray(array, np.float64))
    found = found[np.isfinite(found) & (found < MASKED)]
    return float(found.max()) if found.size else 0.0


def _became_nonfinite(exact: Any, found: Any, largest: float = np.inf) -> bool:
    """Returns whether a finite value with magnitude below `largest` became infinite or NaN."""
    if not (isinstance(exact, np.ndarray) and isinstance(found, np.ndarray) and _is_float(exact) and _is_float(found)):
        return False
    same = exact.shape == found.shape
    there = np.abs(exact, dtype=np.float64) < largest
    return bool((~np.isfinite(found) & there).any() if same else there.all() and not np.isfinite(found).all())


# ---- weights


def _quantised(model: Any, bits: int) -> tuple[Any, int]:
    with _silenced():
        from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

        quantizer = MatMulNBitsQuantizer(model, bits=bits, block_size=BLOCK, is_symmetric=True)
        quantizer.process()
    found = quantizer.model.model
    return found, sum(node.op_type == "MatMulNBits" for node in found.graph.node)


@contextmanager
def _silenced() -> Iterator[None]:
    """Silences the quantiser, which configures logging for the whole process and logs every small weight."""
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
