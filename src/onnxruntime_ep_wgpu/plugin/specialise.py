"""Compiles a graph again for facts of a run: a tensor or a loop is beyond a limit, or extents of one name differ.

In: the graph of a Program, and values for its symbols or the shapes of a run's inputs. Out: a Program in which these values are
constants, or one that assumes less about shapes. With constants, tensors are split over bindings and loops over dispatches, if
necessary. Invariant: the graph keeps no memory of its caller. Its constants are read again from the sources of the Program's
weights.
"""

from __future__ import annotations

import copy
import re
import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import onnx_ir as ir

from ..compiler.compile import compile_graph
from ..compiler.graph.inference.value_info import label_of
from ..compiler.graph.tied import ties_of
from ..compiler.lower.graph_inputs import extent_label
from ..errors import LimitError, UnsupportedError
from ..program.program import NO_EXTENT, Program
from ..program.settings import DEFAULT, CompileSettings
from ..program.target import Target
from ..program.weights import weight_array
from ..runtime.weight_sources import InMemory, WeightSource, WeightSources
from ..trace import span
from .recompiling import COPIED_BYTES

MOST_FAILED = 64  # sets of sizes that do not compile, and are not tried again
NO_NAME = r"\W"  # characters that are replaced in new names of extents


class Specialiser:
    """Compiles `graph` again. Thread safe. Call `keep` after the upload.

    ONNX Runtime treats names of extents as hints. A run may give inputs with a common name different sizes. ONNX Runtime's
    inference gives the present of a growing cache the length of the past. Mostly names are right, so extents of one name are
    compiled as equal until a run shows otherwise.

    Numbers in the shapes of inputs in `declared` (None: all inputs) are the model's, and ONNX Runtime checks them. Numbers of
    the other inputs, which are results of nodes elsewhere, were inferred.
    """

    def __init__(
        self,
        graph: ir.Graph,
        opset_imports: Mapping[str, int],
        target: Target,
        name: str = "",
        settings: CompileSettings = DEFAULT,
        declared: Collection[str] | None = None,
    ) -> None:
        self._graph, self._opsets, self._target, self._name = graph, opset_imports, target, name
        self._settings = settings
        self._inputs = [it for it in graph.inputs if it.const_value is None]
        self._inferred = frozenset(it.name for it in self._inputs if declared is not None and it.name not in declared)
        self._shapes: list[ir.Shape | None] = [it.shape for it in self._inputs]
        self._labels_of_model: dict[str, str] = {}  # the model's name of an extent, by its new name
        self._lock = threading.Lock()
        self._failed: dict[tuple[object, ...], str] = {}  # why it did not compile; `relaxed` copies share it
        self.constants = frozenset(graph.initializers)

    def keep(self, sources: WeightSources) -> None:
        """Releases the arrays of the constants. `sources` has the Program's weights."""
        ties = ties_of(self._graph)
        for name, value in self._graph.initializers.items():
            tensor = value.const_value
            if tensor is None or tensor.dtype == ir.DataType.STRING:
                continue
            tie = ties.get(name)
            source: WeightSource
            if name not in sources.by_name and tensor.nbytes <= COPIED_BYTES:
                source = InMemory(weight_array(tensor).copy())
            elif tie is not None:
                source = sources.of(name, replace(tie, data=self._graph.initializers[tie.of].const_value))
            else:
                source = sources.of(name, tensor)
            value.const_value = lazy_tensor(source, tensor.dtype, tuple(map(int, tensor.shape.numpy())))

    @property
    def may_relax(self) -> bool:
        """Whether a shape was inferred."""
        return bool(self._inferred)

    @property
    def shapes(self) -> list[ir.Shape | None]:
        """The assumed shapes of the inputs."""
        return self._shapes

    def relaxed(self, shapes: Sequence[tuple[int, ...]]) -> Specialiser | None:
        """Returns a Specialiser for inputs of these shapes too, if names or inferred shapes are wrong; None if they are not.

        Extents of one name that are equal in this run stay one symbol. An inferred rank may also be wrong: for a loop without
        iterations, ONNX Runtime infers no rank of the results that it collects.
        """
        named_dims: list[tuple[str, Iterable[int | ir.SymbolicDim | None]]] = []
        for value, known, shape in zip(self._inputs, self._shapes, shapes, strict=True):
            name, fixed = value.name or "", value.name not in self._inferred
            if known is None or (fixed and len(known) != len(shape)):
                return None
            named_dims.append((name, known if len(known) == len(shape) else [None] * len(shape)))
        for (name, dims), shape in zip(named_dims, shapes, strict=True):
            fixed = name not in self._inferred
            if fixed and any(isinstance(dim, int) and dim != size for dim, size in zip(dims, shape, strict=True)):
                return None  # the model's own numbers cannot be relaxed
        labels = {label for _, dims in named_dims for dim in dims if dim is not None and (label := label_of(dim))}
        sizes: dict[str, int] = {}
        split: dict[tuple[str, int], str] = {}
        labels_of_model = dict(self._labels_of_model)

        def assumed_extent(name: str, dim: int | ir.SymbolicDim | None, size: int) -> int | str | ir.SymbolicDim | None:
            label = None if dim is None else label_of(dim)
            if label is None:
                return None if isinstance(dim, int) and dim != size else dim
            if sizes.setdefault(label, size) == size:
                return label
            if (label, size) not in split:
                model = labels_of_model.get(label, label)
                new = [f"{model}_of_{re.sub(NO_NAME, '_', name)}"]
                while new[-1] in labels:
                    new.append(f"{new[0]}_{len(new)}")
                labels.add(new[-1])
                split[label, size], labels_of_model[new[-1]] = new[-1], model
            return split[label, size]

        made: list[ir.Shape | None] = [
            ir.Shape([assumed_extent(name, dim, size) for dim, size in zip(dims, shape, strict=True)])
            for (name, dims), shape in zip(named_dims, shapes, strict=True)
        ]
        if made == self._shapes:
            return None
        found = copy.copy(self)
        found._shapes, found._labels_of_model = made, labels_of_model
        return found

    def sizes_of(self, shapes: Sequence[tuple[int, ...]]) -> dict[str, int]:
        """Returns the values of all extents that a run decides, in a run with inputs of these shapes."""
        return {
            extent_label(value.name or "", axis, dim): size
            for value, dims, shape in zip(self._inputs, self._shapes, shapes, strict=True)
            for axis, (dim, size) in enumerate(zip(dims or (), shape, strict=True))
            if not isinstance(dim, int)
        }

    def __call__(self, values: Mapping[str, int] | None = None) -> Program:
        """Returns the Program for these values of symbols, by name. Raises LimitError if it is still beyond a limit.

        A failure is stored, and not tried again.
        """
        values = values or {}
        tried = *map(str, self._shapes), *sorted(values.items())
        try:
            with self._lock:
                if tried in self._failed:
                    raise LimitError(self._failed[tried])
                for value, shape in zip(self._inputs, self._shapes, strict=True):
                    value.shape = shape
                shown: dict[str, object] = {name.removeprefix(NO_EXTENT): size for name, size in values.items()}
                with span("compile", self._name, **(shown or {"reason": "extents of one name differ"})):
                    return compile_graph(self._graph, self._opsets, self._target, self._name, self._settings, values)
        except UnsupportedError as error:
            if len(self._failed) < MOST_FAILED:
                self._failed[tried] = f"{error}, with {dict(values)}"
            raise LimitError(f"{error}, with {dict(values)}") from error


def lazy_tensor(source: WeightSource, dtype: ir.DataType, shape: tuple[int, ...]) -> ir.LazyTensor:
    """Returns a tensor that is read when it is used. Elements narrower than a byte are packed in their source."""
    dims = ir.Shape(shape)

    def read() -> ir.TensorProtocol:
        array = source.read()
        if dtype.bitwidth < 8:
            return ir.PackedTensor(array.reshape(-1).view(np.uint8), dtype, shape=dims)
        return ir.Tensor(array.reshape(shape), dtype)

    return ir.LazyTensor(read, dtype, dims)
