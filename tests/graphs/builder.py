"""A graph that grows node by node; each is calculated for every run when it is added, and refused when it is no fair test.

So every graph is valid for all of its sizes, its expected results and their errors are known when it is complete, and what is
known at a point (a shape, a range, whether a value is exact) can be looked at instead of derived.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from onnx import defs

from . import rounding, values
from .case import Case, Node, Source
from .rounding import Reject
from .values import Value

MOST_ELEMENTS = 600
MOST_INTEGER = 2**55
SHAPE_ONLY = frozenset({"Shape", "Size"})
ONNX_TYPES = {"float32": "float", "bfloat16": "bfloat16"}


class Dice:
    """Random choices; one stream per graph."""

    def __init__(self, seed: int) -> None:
        self.numbers = np.random.default_rng(seed)

    def chance(self, probability: float) -> bool:
        return bool(self.numbers.random() < probability)

    def between(self, low: int, high: int) -> int:
        """Both ends included."""
        return int(self.numbers.integers(low, high + 1))

    def of(self, choices: Sequence[Any]) -> Any:
        if not choices:
            raise Reject("nothing to choose from")
        return choices[int(self.numbers.integers(len(choices)))]

    def shuffled(self, items: Sequence[Any]) -> list[Any]:
        return [items[k] for k in self.numbers.permutation(len(items))]


class Graph:
    """`sizes`: named sizes, each with its extent in every run."""

    def __init__(self, seed: int, opset: int, runs: int, sizes: dict[str, tuple[int, ...]]) -> None:
        self.seed, self.opset, self.runs, self.sizes = seed, opset, runs, dict(sizes)
        self.dice = Dice(seed)
        self.sources: list[Source] = []
        self.nodes: list[Node] = []
        self.values: list[Value] = []
        self.by_name: dict[str, Value] = {}

    # ---- sources

    def tensor(self, dtype: str, shapes: Sequence[tuple[int, ...]], whole: bool | None = None, low: float = -2.0,
               high: float = 2.0, constant: float = 0.5) -> Value:  # fmt: skip
        """A new input, or, by the chance `constant` and when no run differs, an initializer, of random elements.

        `whole`: floats are small whole numbers; by default sometimes.
        """
        fixed = len(set(shapes)) == 1 and self.dice.chance(constant)
        whole = self.dice.chance(0.4) if whole is None else whole
        made = shapes[:1] if fixed else shapes
        return self.source(dtype, [self.elements(dtype, s, whole, low, high) for s in made], fixed)

    def elements(self, dtype: str, shape: tuple[int, ...], whole: bool, low: float, high: float) -> np.ndarray:
        numbers = self.dice.numbers
        if dtype == "bool":
            return numbers.integers(0, 2, shape).astype(bool)
        if dtype in values.UNIT:
            drawn = (
                numbers.integers(math.ceil(low), math.floor(high) + 1, shape)
                if whole
                else numbers.uniform(low, high, shape)
            )
            return values.stored(drawn, dtype)
        limits = np.iinfo(dtype)
        if dtype in ("int64", "uint64") and self.dice.chance(0.15):
            return numbers.integers(0 if dtype == "uint64" else -(2**40), 2**40, shape).astype(dtype)
        return numbers.integers(max(limits.min, -9), 10, shape).astype(dtype)

    def source(self, dtype: str, arrays: Sequence[np.ndarray], constant: bool) -> Value:
        """A new input with these arrays, one per run, or an initializer with a single one; equal initializers are often one."""
        if constant and self.dice.chance(0.5):
            for known in self.sources:
                if known.constant and known.dtype == dtype and _equal(known.arrays[0], arrays[0]):
                    return self.by_name[known.name]
        name = f"{'w' if constant else 'x'}{len(self.sources)}"
        shapes = [a.shape for a in arrays]
        dims = () if constant else tuple(self._dim([s[k] for s in shapes]) for k in range(len(shapes[0])))
        self.sources.append(Source(name, dtype, tuple(arrays), dims, constant))
        runs = tuple((values.calculated(arrays[min(k, len(arrays) - 1)], dtype),) for k in range(self.runs))
        on_host = constant and dtype in ("int64", "int32") and runs[0][0].size <= 32
        return self._remember(Value(name, dtype, runs, on_host, constant))

    def constant(self, array: Any, dtype: str = "int64") -> Value:
        """An initializer, or now and then a Constant node."""
        if self.dice.chance(0.1):
            made = np.asarray(array, values.numpy_type(dtype))
            value = self.add("Constant", types=[dtype], value=made)
            value.on_host, value.constant = dtype in ("int64", "int32") and made.size <= 32, True
            return value
        return self.source(dtype, [np.asarray(array, values.numpy_type(dtype))], True)

    def per_run(self, arrays: Sequence[Any], dtype: str = "int64") -> Value:
        """An input with these arrays, or an initializer where they are one."""
        made = [np.asarray(a, values.numpy_type(dtype)) for a in arrays]
        fixed = all(_equal(made[0], other) for other in made) and self.dice.chance(0.7)
        return self.source(dtype, made[:1] if fixed else made, fixed)

    def _dim(self, extents: list[int]) -> int | str | None:
        """How an input declares an axis: a size, a name that others share, or nothing."""
        if len(set(extents)) == 1 and self.dice.chance(0.85):
            return extents[0]
        if self.dice.chance(0.1):
            return None
        shared = [name for name, size in self.sizes.items() if size == tuple(extents)]
        if shared and self.dice.chance(0.9):
            return str(self.dice.of(shared))
        name = f"d{len(self.sizes)}"
        self.sizes[name] = tuple(extents)
        return name

    def _remember(self, value: Value) -> Value:
        self.values.append(value)
        self.by_name[value.name] = value
        return value

    # ---- nodes

    def add(
        self, op: str, *inputs: Value | None, outputs: int = 1, types: Sequence[str] = (), **attributes: Any
    ) -> Any:
        """Appends a node and gives its output, or a list of several. Raises Reject and leaves the graph as it was.

        `types` are those of the outputs, by default that of the first input.
        """
        self._check_types(op, inputs)
        number = len(self.nodes)
        while inputs and inputs[-1] is None:
            inputs = inputs[:-1]
        first = next((i for i in inputs if i is not None), None)
        kinds = list(types) or [first.dtype if first else "float32"] * outputs
        names = tuple(f"v{number}" if outputs == 1 else f"v{number}_{k}" for k in range(outputs))
        node = Node(
            f"n{number}", op, tuple("" if i is None else i.name for i in inputs), names, tuple(kinds), attributes
        )
        found = [
            rounding.samples_of(
                node, [None if i is None else i.runs[run] for i in inputs], self.opset, (self.seed, run)
            )
            for run in range(self.runs)
        ]
        made = []
        for k, (name, dtype) in enumerate(zip(names, kinds, strict=True)):
            runs = tuple(results[k] for results in found)
            self._check_value(op, dtype, runs)
            host = op in SHAPE_ONLY or (all(i is None or i.on_host for i in inputs) and dtype not in values.UNIT)
            made.append(Value(name, dtype, runs, host and bool(inputs)))
        for value in inputs:
            if value is not None:
                value.readers += 1
        self.nodes.append(node)
        for value in made:
            self._remember(value)
        return made[0] if outputs == 1 else made

    def _check_types(self, op: str, inputs: Sequence[Value | None]) -> None:
        try:
            schema = defs.get_schema(op, self.opset, "")
        except defs.SchemaError as error:
            raise Reject(f"{op}: not in opset {self.opset}") from error
        for k, value in enumerate(inputs):
            formal = schema.inputs[min(k, len(schema.inputs) - 1)]
            if value is not None and f"tensor({ONNX_TYPES.get(value.dtype, value.dtype)})" not in formal.types:
                raise Reject(f"{op}: no {value.dtype}")

    def _check_value(self, op: str, dtype: str, runs: Sequence[values.Samples]) -> None:
        if len({samples[0].ndim for samples in runs}) != 1:
            raise Reject(f"{op}: the rank differs between runs")
        for samples in runs:
            first = samples[0]
            if first.size > MOST_ELEMENTS or first.ndim > 6:
                raise Reject(f"{op}: large")
            if dtype in values.UNIT:
                if not all(np.isfinite(s).all() for s in samples):
                    raise Reject(f"{op}: not finite")
                if np.abs(first).max(initial=0) > values.LARGEST[dtype]:
                    raise Reject(f"{op}: large numbers")
                if 0 < np.abs(first).max(initial=0) < values.LEAST:
                    raise Reject(f"{op}: vanishing numbers")
                rounding.check_precision(op, dtype, samples)
            elif dtype != "bool" and first.size and max(abs(int(first.min())), abs(int(first.max()))) > MOST_INTEGER:
                raise Reject(f"{op}: large integers")
        # All zeros tell nothing of what follows.
        big = [samples[0] for samples in runs if samples[0].size > 3]
        if (
            big
            and dtype in values.UNIT
            and all((a == a.reshape(-1)[0]).all() for a in big)
            and not self.dice.chance(0.15)
        ):
            raise Reject(f"{op}: all the same")

    def attempt(self, recipe: Callable[[Graph], Any]) -> str:
        """Runs a recipe; whatever it added goes again when it rejects. The reason, or nothing."""
        mark = len(self.sources), len(self.nodes), len(self.values), dict(self.sizes)
        readers = [v.readers for v in self.values]
        try:
            recipe(self)
            return ""
        except Reject as reason:
            del self.sources[mark[0] :], self.nodes[mark[1] :]
            for value in self.values[mark[2] :]:
                del self.by_name[value.name]
            del self.values[mark[2] :]
            self.sizes = mark[3]
            for value, count in zip(self.values, readers, strict=True):
                value.readers = count
            return str(reason) or "rejected"

    # ---- choosing

    def pick(self, fits: Callable[[Value], bool]) -> Value:
        """A value that fits, mostly one of the last, and mostly one that nothing has read. Raises Reject."""
        found = [v for v in self.values if fits(v)]
        if not found:
            raise Reject("no such value")
        fresh = [v for v in found if not v.readers and not v.constant]
        if fresh and self.dice.chance(0.6):
            return fresh[-1 - min(self.dice.between(0, 3), self.dice.between(0, 3), len(fresh) - 1)]
        return found[-1 - min(self.dice.between(0, len(found) - 1), self.dice.between(0, len(found) - 1))]

    def done(self, optimise: bool, on_cpu: Sequence[str], alias: bool, extra: float = 0.1) -> Case:
        """The graph as a case; outputs are what nothing reads, and some of the rest."""
        read = {name for node in self.nodes for name in node.inputs}
        made = [self.by_name[name] for node in self.nodes for name in node.outputs]
        chosen = [v for v in made if v.name not in read or self.dice.chance(extra)]
        used = tuple(s for s in self.sources if s.name in read)
        outputs = tuple((v.name, v.dtype, v.rank) for v in chosen)
        return Case(self.seed, self.opset, used, tuple(self.nodes), outputs, self.runs, optimise, tuple(on_cpu), alias)


def _equal(one: np.ndarray, other: np.ndarray) -> bool:
    return one.shape == other.shape and one.tobytes() == other.tobytes()


def replayed(case: Case) -> dict[str, Value]:
    """The values of a case that is at hand as data, calculated as when it grew. Raises Reject when it is no longer fair."""
    found: dict[str, Value] = {}
    for source in case.sources:
        arrays = [source.arrays[min(run, len(source.arrays) - 1)] for run in range(case.runs)]
        runs = tuple((values.calculated(array, source.dtype),) for array in arrays)
        found[source.name] = Value(source.name, source.dtype, runs, constant=source.constant)
    for node in case.nodes:
        inputs = [found[name] if name else None for name in node.inputs]
        results = [
            rounding.samples_of(
                node, [None if i is None else i.runs[run] for i in inputs], case.opset, (case.seed, run)
            )
            for run in range(case.runs)
        ]
        for k, (name, dtype) in enumerate(zip(node.outputs, node.types, strict=True)):
            found[name] = Value(name, dtype, tuple(samples[k] for samples in results))
    return found
