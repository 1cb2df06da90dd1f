"""A graph compiled once more for sizes that are known: what happens when a tensor or a loop turns out beyond a limit.

In: the graph of a Program and values for its symbols. Out: a Program in which these values are constants, so that tensors
are split over bindings and loops over dispatches where it takes that. Invariant: the graph keeps no memory of its caller:
its constants are read again from where the Program's weights are.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx_ir as ir

from ..compiler.compile import compile_graph
from ..compiler.settings import DEFAULT, CompileSettings
from ..compiler.tied import ties_of
from ..errors import LimitError, UnsupportedError
from ..program.program import Program
from ..program.target import Target
from ..program.weights import weight_array
from ..runtime.weights import SourceOf, WeightSource

COPIED_BYTES = 4096  # a smaller constant is copied: looking for it in the model's file costs more


class Specialiser:
    """Compiles `graph` again, thread safe. Call `keep` after the upload."""

    def __init__(
        self,
        graph: ir.Graph,
        opset_imports: Mapping[str, int],
        target: Target,
        name: str = "",
        settings: CompileSettings = DEFAULT,
    ) -> None:
        self._graph, self._opsets, self._target, self._name = graph, opset_imports, target, name
        self._settings = settings
        self._lock = threading.Lock()
        self.constants = frozenset(graph.initializers)

    def keep(self, sources: Mapping[str, WeightSource], source_of: SourceOf) -> None:
        """Lets go of the arrays behind the constants. `sources` by name are those of the Program's weights."""
        ties = ties_of(self._graph)
        for name, value in self._graph.initializers.items():
            tensor = value.const_value
            if tensor is None or tensor.dtype == ir.DataType.STRING:
                continue
            tie = ties.get(name)
            source = sources.get(name) or (
                _Turned(sources[tie.name], tie.order) if tie and tie.name in sources else None
            )
            if source is None:
                array = weight_array(tensor)
                source = _Copy(array.copy()) if array.nbytes <= COPIED_BYTES else source_of(name, array)
            value.const_value = ir.LazyTensor(_reader(source, tensor.dtype, tensor.shape), tensor.dtype, _fixed(tensor))

    def __call__(self, values: Mapping[str, int]) -> Program:
        """The Program for these values of the symbols. Raises LimitError when even that is beyond a limit."""
        try:
            with self._lock:
                return compile_graph(self._graph, self._opsets, self._target, self._name, self._settings, values)
        except UnsupportedError as error:
            raise LimitError(f"{error}, with {dict(values)}") from error


class _Copy:
    """A constant in memory of our own."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self._array = array

    def read(self) -> np.ndarray[Any, Any]:
        return self._array


class _Turned:
    """A constant that is another one with its axes in another order."""

    def __init__(self, source: WeightSource, order: tuple[int, ...]) -> None:
        self._source, self._order = source, order

    def read(self) -> np.ndarray[Any, Any]:
        return self._source.read().transpose(self._order)


def _fixed(tensor: ir.TensorProtocol) -> ir.Shape:
    return ir.Shape([int(d) for d in tensor.shape.numpy()])


def _reader(source: WeightSource, dtype: ir.DataType, shape: Any) -> Any:
    """A function that reads the tensor; elements narrower than a byte lie packed in their source."""
    dims = ir.Shape([int(d) for d in shape.numpy()])

    def read() -> ir.TensorProtocol:
        array = source.read()
        if dtype.bitwidth < 8:
            return ir.PackedTensor(array.reshape(-1).view(np.uint8), dtype, shape=dims)
        return ir.Tensor(array.reshape(dims.numpy()), dtype)

    return read
