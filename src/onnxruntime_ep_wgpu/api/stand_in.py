"""Replaces a compiled group of a session by another calculation: the CPU provider, or float64.

In: a compiled group, and a model file of its graph with all values as outputs. Out: an object that runs as the group, and
records the inputs of its first run. Invariant: a replacement receives the group's inputs and returns all of its outputs, so the
rest of the session is unaffected."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..device import Place
from ..program.axes import model_name
from ..program.dtypes import DType, packed, unpacked
from ..writing import errors_about
from .exact import LARGEST, NoReference, Reference
from .model_file import plain_settings

Arrays = Mapping[str, Any]
# A function from the group and its inputs by name to its outputs by name.
Instead = Callable[["StandIn", Arrays], Arrays]


class StandIn:
    """`given` are the inputs of the first run, None before it. `instead` replaces the kernels; None means the kernels run."""

    def __init__(self, group: Any, path: Path) -> None:
        self.live, self.path = group.on_device(), path
        self.device = self.live.device
        self.given: list[Any] | None = None
        self.instead: Instead | None = None
        self._sessions: dict[frozenset[str], Any] = {}
        self.reference: Reference | None = None
        self.elements = 0  # of all values in the first run

    @property
    def executable(self) -> Any:
        """The executable of the group."""
        return self.live.executable

    def on_device(self) -> StandIn:
        """Returns this group. It runs on one device only."""
        return self

    def prepare(self, inputs: Any) -> Any:
        if self.instead is not None:
            arrays = [self._array(tensor) for tensor in inputs(frozenset())]
            found = self.instead(self, dict(zip(self.inputs, arrays, strict=True)))
            return _Calculated(self.device, self._as_stored(found))
        if self.given is not None:
            return self.live.prepare(inputs)

        def kept(valued: frozenset[int]) -> Any:
            tensors = inputs(valued)
            self.given = [self._array(tensor) for tensor in tensors]
            return tensors

        return self.live.prepare(kept)

    def _array(self, tensor: Any) -> Any:
        data = np.empty(tensor.dtype.nbytes(math.prod(tensor.shape)), np.uint8)
        if data.size:
            self.device.download(tensor.buffer, tensor.offset, data.data)
        return unpacked(data, tensor.dtype, tensor.shape)

    @property
    def inputs(self) -> list[str]:
        """The names of the inputs, in the order of the Program."""
        program = self.live.executable.program
        return [program.values[value].name for value in program.inputs]

    def _outputs(self) -> list[tuple[str, DType]]:
        program = self.live.executable.program
        shapes = {shape for _, shape in program.sized}
        values = [program.values[value] for value in program.outputs if value not in shapes]
        return [(model_name(value.name)[0], value.dtype) for value in values]

    def _as_stored(self, found: Arrays) -> list[tuple[DType, Any]]:
        """Converts the outputs to the Program's form: those of data-dependent shape are flat and followed by their shapes."""
        program = self.live.executable.program
        results = [(dtype, np.asarray(found[name])) for name, dtype in self._outputs()]
        sized = [place for place, value in enumerate(program.outputs) if value in dict(program.sized)]
        shapes = [(DType.INT64, np.array(results[place][1].shape, np.int64)) for place in sized]
        return [(dtype, it.reshape(-1) if k in sized else it) for k, (dtype, it) in enumerate(results)] + shapes

    def on_cpu(self, feeds: Arrays, replaced: Arrays | None = None) -> Arrays:
        """Returns the outputs from the unoptimised CPU provider. `replaced` values are used instead of calculated ones."""
        replaced = replaced or {}
        if all(name in replaced for name, _ in self._outputs()):
            return replaced
        session = self._session(frozenset(replaced))
        wanted = [it.name for it in session.get_outputs()]
        read = {it.name for it in session.get_inputs()}
        given = {name: value for name, value in {**feeds, **replaced}.items() if name in read}
        return {**replaced, **dict(zip(wanted, session.run(wanted, given), strict=True))}

    def in_f64(self, feeds: Arrays) -> Arrays:
        """Returns the outputs in float64, from the operators' reference definitions. Raises NoReference."""
        if self.elements > LARGEST:
            raise NoReference(f"its values have {self.elements} elements, too many for the reference implementation")
        if self.reference is None:
            self.reference = Reference(self.path)
        return self.reference.values([name for name, _ in self._outputs()], feeds)

    def _session(self, replaced: frozenset[str]) -> Any:
        if replaced not in self._sessions:
            self._sessions[replaced] = cpu_session(_with_inputs(self.path, replaced, [it for it, _ in self._outputs()]))
        return self._sessions[replaced]


def cpu_session(path: Path) -> Any:
    """Returns a session on the CPU provider without graph optimisation."""
    import onnxruntime as ort

    return ort.InferenceSession(str(path), plain_settings(), providers=["CPUExecutionProvider"])


def _with_inputs(path: Path, values: frozenset[str], outputs: Sequence[str]) -> Path:
    """Writes the same graph beside `path` with `values` as additional inputs. Its outputs are the rest of `outputs`."""
    import onnx

    model = onnx.load(path, load_external_data=False)
    types = {it.name: it for it in model.graph.output}
    for node in model.graph.node:
        for k, name in enumerate(node.output):
            if name in values:
                node.output[k] = f"{name} as the CPU provider has it"
    model.graph.input.extend(types[name] for name in sorted(values))
    del model.graph.output[:]
    model.graph.output.extend(types[name] for name in outputs if name not in values)
    made = path.with_name(f"without_{'_'.join(str(list(types).index(it)) for it in sorted(values))}.onnx")
    with errors_about(made):
        onnx.save(model, made)
    return made


class _Calculated:
    """A finished run with given results and the interface of `runtime.executable.Run`."""

    def __init__(self, device: Any, results: Sequence[tuple[DType, Any]]) -> None:
        self._device = device
        self._results = [(dtype, np.asarray(array).astype(dtype.numpy)) for dtype, array in results]

    def __enter__(self) -> _Calculated:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    @property
    def outputs(self) -> list[tuple[DType, tuple[int, ...]]]:
        return [(dtype, array.shape) for dtype, array in self._results]

    def submission(self, _places: Sequence[Place | None]) -> None:
        """Returns None: `submit` does more than queue GPU work."""

    def submit(self, places: Sequence[Place | None]) -> None:
        for place, (_, array) in zip(places, self._results, strict=True):
            if place is not None:
                self._device.upload(place.buffer, place.offset, packed(array).data)
