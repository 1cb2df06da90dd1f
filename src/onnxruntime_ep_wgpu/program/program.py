"""The compiled form of a graph: plain data that can be saved, loaded, planned and run without onnx.

Kernel are WGSL text, shapes are postfix expressions over named symbols (see `postfix`), weights are arrays by index. The
native runner, a browser, a cache and an inspector all read this one format.
"""

from __future__ import annotations

import enum
import json
import struct
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from ..errors import ProgramError
from .dtypes import DType, numpy_type, packed
from .postfix import Postfix
from .target import Target, lack

FORMAT_VERSION = 6
REPETITION = "@repetition"  # the symbol that counts the runs of a repeated dispatch
_MAGIC = b"wgpuprog"


class Storage(enum.Enum):
    """Who owns the memory of a value, and when it is written."""

    INPUT = "input"  # the caller's, read
    OUTPUT = "output"  # the caller's, written
    WEIGHT = "weight"  # the session's, written once
    TEMP = "temp"  # planned from liveness
    HOST = "host"  # small integers computed from dimensions, written when a plan is made


@dataclass(frozen=True)
class Value:
    """A tensor. `weight` indexes `Program.weights`; `elements` are the dims a HOST value holds, row-major."""

    name: str
    dtype: DType
    shape: tuple[Postfix, ...]
    storage: Storage
    weight: int = -1
    elements: tuple[Postfix, ...] = ()


@dataclass(frozen=True)
class Kernel:
    """WGSL texts, one per variant, that bind the same. `bindings` are "read" or "read_write" in binding order; a uniform
    block of `uniforms` u32 follows them when it is not 0. `makes_infinity`: it has an infinite constant, as masks do."""

    label: str
    wgsl: tuple[str, ...]
    bindings: tuple[str, ...]
    uniforms: int
    makes_infinity: bool = False

    @property
    def all_bindings(self) -> tuple[str, ...]:
        """The bindings with the uniform block, as a pipeline needs them."""
        return (*self.bindings, "uniform") if self.uniforms else self.bindings


@dataclass(frozen=True)
class Dispatch:
    """One use of a kernel. `args` are values in binding order, `uniforms` u32 dims, `origin` ONNX node names.

    `guards` and `workgroups` have one entry per variant of the kernel: the first variant whose guard is not 0 runs.
    `operators` are the ONNX operators of `origin`. `flops` (arithmetic operations) and `traffic` (bytes read and written)
    are for profiles; see `passes/work.py`. It runs `repeats` times, one after another; `uniforms` may use the symbol
    `REPETITION`, which counts them from 0. `windows` has for every one of `args` the first byte and the number of bytes that
    are bound, None for all of it; a value with several windows is there as often.
    """

    kernel: int
    args: tuple[int, ...]
    uniforms: tuple[Postfix, ...]
    guards: tuple[Postfix, ...]
    workgroups: tuple[Postfix, ...]
    origin: tuple[str, ...]
    operators: tuple[str, ...]
    flops: Postfix
    traffic: Postfix
    repeats: Postfix = 1
    windows: tuple[tuple[Postfix, Postfix] | None, ...] = ()


@dataclass(frozen=True)
class Assertion:
    """Every element of a value, integers, is from `low` to `high`, else outside `what`; the nodes `origin` rely on it."""

    value: int
    low: Postfix
    high: Postfix
    what: str
    origin: tuple[str, ...]


@dataclass(frozen=True)
class Symbol:
    """A number known when the inputs are: the extent of an input's axis, or an element of a small integer input."""

    name: str
    input: int
    index: int
    is_element: bool


@dataclass(frozen=True)
class Check:
    """`condition` must not be 0. Otherwise `text` says what is wrong, with a place `{}` for each of `dims`.

    `limit`: it is a limit of the target, so that a Program for these very sizes may do better.
    """

    condition: Postfix
    text: str
    dims: tuple[Postfix, ...] = ()
    limit: bool = False


@dataclass(frozen=True)
class Program:
    """Everything needed to run a graph on any device that satisfies `target`.

    `definitions` are further symbols, each an expression over those before it. `inputs` and `outputs` index `values` in
    ONNX order. `checks` are conditions that must not be 0; `assertions` are about data, and looked at only by runs that
    check everything. `said` are more definitions, which only messages use.
    """

    name: str
    target: Target
    symbols: tuple[Symbol, ...]
    definitions: tuple[tuple[str, Postfix], ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    values: tuple[Value, ...]
    kernels: tuple[Kernel, ...]
    dispatches: tuple[Dispatch, ...]
    checks: tuple[Check, ...] = ()
    assertions: tuple[Assertion, ...] = ()
    said: tuple[tuple[str, Postfix], ...] = ()
    weights: tuple[Any, ...] = field(default=(), repr=False)
    format_version: int = FORMAT_VERSION

    # ---- files

    def save(self, path: str | Path) -> None:
        """Writes the program and its weights to one file."""
        with open(path, "wb") as file:
            self._write(file)

    def _write(self, file: BinaryIO) -> None:
        arrays = [weight_array(w) for w in self.weights]
        header = {
            "format_version": self.format_version,
            "name": self.name,
            "target": {**asdict(self.target), "features": sorted(self.target.features)},
            "symbols": [[s.name, s.input, s.index, s.is_element] for s in self.symbols],
            "definitions": self.definitions,
            "inputs": self.inputs,
            "outputs": self.outputs,
            "values": [[v.name, v.dtype.name, v.shape, v.storage.name, v.weight, v.elements] for v in self.values],
            "kernels": [[k.label, k.wgsl, k.bindings, k.uniforms, k.makes_infinity] for k in self.kernels],
            "dispatches": [[getattr(d, f.name) for f in fields(Dispatch)] for d in self.dispatches],
            "checks": [[c.condition, c.text, c.dims, c.limit] for c in self.checks],
            "said": self.said,
            "assertions": [[getattr(a, f.name) for f in fields(Assertion)] for a in self.assertions],
            "weights": [[a.dtype.name, a.shape, a.nbytes] for a in arrays],
        }
        text = json.dumps(header, separators=(",", ":")).encode()
        file.write(_MAGIC + struct.pack("<II", self.format_version, len(text)) + text)
        for array in arrays:
            file.write(b"\0" * (-file.tell() % 16))
            file.write(weight_bytes(array))

    @staticmethod
    def load(path: str | Path, target: Target | None = None) -> Program:
        """Reads a saved program; weights are mapped, not read. Raises ProgramError when it is damaged, of another
        format version, or needs more than `target` offers."""
        try:
            with open(path, "rb") as file:
                if file.read(8) != _MAGIC:
                    raise ProgramError(f"{path} is not a saved program")
                version, length = struct.unpack("<II", file.read(8))
                if version != FORMAT_VERSION:
                    raise ProgramError(
                        f"{path} has format version {version}, this package reads {FORMAT_VERSION}: export it again"
                    )
                header = json.loads(file.read(length))
                start = file.tell()
            program = _from_header(header, path, start)
        except (struct.error, ValueError, KeyError, TypeError, IndexError) as error:
            raise ProgramError(f"{path} is damaged: {error}") from error
        if target is not None:
            check_target(program.target, target, str(path))
        return program


def check_target(needs: Target, has: Target, what: str) -> None:
    """Raises ProgramError naming the first thing that a program for `needs` relies on and `has` lacks."""
    missing = lack(needs, has)
    if missing:
        raise ProgramError(f"{what} {missing}: export it for this target")


def weight_array(weight: Any) -> Any:
    """The numpy array of a weight, which may be a lazy onnx_ir tensor; elements narrower than a byte as packed bytes."""
    array = np.asarray(weight.numpy() if hasattr(weight, "numpy") else weight)
    return packed(array) if DType.of_numpy(array.dtype).bits < 8 else array


def weight_names(program: Program) -> list[str]:
    """The name of every weight in the model, "" for one that was calculated."""
    names = {value.weight: value.name for value in program.values}
    return [names.get(number, "") for number in range(len(program.weights))]


def weight_bytes(array: Any) -> memoryview:
    """The memory of an array in row-major order, as bytes."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def _tuple(value: Any) -> Any:
    return tuple(_tuple(v) for v in value) if isinstance(value, list) else value


def _from_header(header: dict[str, Any], path: str | Path, start: int) -> Program:
    weights = []
    for dtype, shape, nbytes in header["weights"]:
        start += -start % 16
        kind = numpy_type(dtype)
        weights.append(np.memmap(path, kind, "r", start, tuple(shape)) if nbytes else np.empty(shape, kind))
        start += nbytes
    target = Target(**{**header["target"], "features": frozenset(header["target"]["features"])})
    return Program(
        header["name"],
        target,
        tuple(Symbol(*s) for s in header["symbols"]),
        _tuple(header["definitions"]),
        tuple(header["inputs"]),
        tuple(header["outputs"]),
        tuple(Value(n, DType[d], _tuple(s), Storage[t], w, _tuple(e)) for n, d, s, t, w, e in header["values"]),
        tuple(Kernel(label, _tuple(w), _tuple(b), *rest) for label, w, b, *rest in header["kernels"]),
        tuple(Dispatch(k, *map(_tuple, rest)) for k, *rest in header["dispatches"]),
        tuple(Check(*map(_tuple, it)) for it in header["checks"]),
        tuple(Assertion(*map(_tuple, it)) for it in header["assertions"]),
        _tuple(header["said"]),
        tuple(weights),
    )
