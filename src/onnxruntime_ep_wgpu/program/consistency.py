"""Checks that the tables of a Program are consistent: indices of values, kernels and inputs, types and storages.

In: a Program with checked cells (`reading.py`). Out: nothing, or a ValueError that describes the fault.
"""

from __future__ import annotations

import string
from collections.abc import Callable

from ..errors import cut
from .dtypes import DType
from .program import Check, Dispatch, Kernel, Program, Storage, Value

_ELEMENTS = (DType.BOOL, DType.FLOAT32, DType.FLOAT16)  # besides integers: types of which elements may be symbols
_WRITTEN = (Storage.OUTPUT, Storage.TEMP, Storage.STATE)  # storages that a kernel may write
_STATE = 4  # numbers of a state


def check_consistent(program: Program) -> None:
    """Raises ValueError if the tables are not consistent."""
    values = program.values

    def value(number: int, of: str, *storages: Storage) -> Value:
        if number >= len(values):
            raise ValueError(f"{of} is value {number}, but there are {len(values)}")
        if storages and values[number].storage not in storages:
            raise ValueError(f"{of} is a value of storage {values[number].storage.name}")
        return values[number]

    for place, known, numbers in (
        (Storage.INPUT, (), program.inputs),
        (Storage.OUTPUT, (Storage.HOST,), program.outputs),
    ):
        for number in numbers:
            value(number, f"an {place.value}", place, *known)
        own = [k for k, it in enumerate(values) if it.storage is place]
        if sorted(it for it in numbers if values[it].storage is place) != own:
            raise ValueError(f"the {place.value}s are {cut(numbers)} and the values of that storage {cut(own)}")
    for it in values:
        if (it.storage is Storage.WEIGHT) != (it.weight >= 0):
            raise ValueError(f"the value {it.name!r} of storage {it.storage.name} has the weight {it.weight}")
        if it.dtype is DType.STRING and it.storage is not Storage.INPUT:  # an unused input
            raise ValueError(f"the value {it.name!r} of storage {it.storage.name} contains strings")
        if it.storage is Storage.HOST and it.dtype.bits < 8:
            raise ValueError(f"the value {it.name!r} of storage HOST is {it.dtype.label}")
        if it.storage is Storage.STATE:
            _check_state(it)
        elif it.elements and it.storage is not Storage.HOST:
            raise ValueError(f"the value {it.name!r} of storage {it.storage.name} has elements")
    for symbol in program.symbols:
        if symbol.input >= len(program.inputs):
            raise ValueError(
                f"the dimension {symbol.name!r} refers to input {symbol.input}, but there are {len(program.inputs)}"
            )
        source = values[program.inputs[symbol.input]]
        if not symbol.is_element and symbol.index >= len(source.shape):
            raise ValueError(
                f"the dimension {symbol.name!r} refers to axis {symbol.index}, but there are {len(source.shape)}"
            )
        if symbol.is_element and not (source.dtype.is_integer or source.dtype in _ELEMENTS):
            raise ValueError(f"the dimension {symbol.name!r} is an element of {source.dtype.label}")
    for dispatch in program.dispatches:
        if dispatch.kernel >= len(program.kernels):
            raise ValueError(f"a dispatch refers to kernel {dispatch.kernel}, but there are {len(program.kernels)}")
        _check_dispatch(dispatch, program.kernels[dispatch.kernel], value)
    for check in program.checks:
        _check_text(check)
    for assertion in program.assertions:
        value(assertion.value, "the value of an assertion")
    for output, shape in program.sized:
        _check_sized(program, output, value(output, "a result with a data-dependent size", Storage.OUTPUT), shape)
    for output, source_of in program.aliases:
        a, b = value(output, "an alias", Storage.OUTPUT), value(source_of, "an alias's source", Storage.INPUT)
        if a.dtype is not b.dtype:
            raise ValueError(f"{a.name!r} is {a.dtype.label}, its alias {b.name!r} is {b.dtype.label}")


def _check_sized(program: Program, output: int, most: Value, shape: int) -> None:
    """Raises ValueError unless a result and its shape are two outputs, both one-dimensional."""
    if not {output, shape} <= set(program.outputs) or output == shape:
        raise ValueError(f"{most.name!r} or its shape is not an output")
    extents = program.values[shape]
    if len(most.shape) != 1 or len(extents.shape) != 1 or extents.dtype is not DType.INT64:
        raise ValueError(f"{most.name!r} or its shape is not one-dimensional")


def _check_state(it: Value) -> None:
    """Raises ValueError unless a state is a vector of four u32 with four numbers, or none."""
    if it.dtype is not DType.UINT32 or it.shape != (_STATE,):
        raise ValueError(f"the state {it.name!r} is {it.dtype.label} {cut(it.shape)}")
    if len(it.elements) not in (0, _STATE) or not all(isinstance(e, int) and 0 <= e < 1 << 32 for e in it.elements):
        raise ValueError(f"the state {it.name!r} begins with {cut(it.elements)}")


def _check_dispatch(it: Dispatch, kernel: Kernel, value: Callable[..., Value]) -> None:
    variants, bindings = len(kernel.wgsl), len(kernel.bindings)
    if not variants or len(it.guards) != variants or len(it.workgroups) != variants:
        raise ValueError(f"a dispatch does not fit the {variants} variants of its kernel {kernel.label!r}")
    if len(it.args) != bindings or len(it.ranges) not in (0, bindings) or len(it.uniforms) != kernel.uniforms:
        raise ValueError(f"a dispatch does not fit the bindings of its kernel {kernel.label!r}")
    for number, access in zip(it.args, kernel.bindings, strict=True):
        what = f"an argument of the kernel {kernel.label!r}"
        found = value(number, f"{what} that it writes", *_WRITTEN) if access == "read_write" else value(number, what)
        if found.dtype is DType.STRING:
            raise ValueError(f"{what} contains strings")


def _check_text(check: Check) -> None:
    """Allows only the placeholder `{}` for dims. A format of Python can name attributes, or a width that exhausts memory."""
    places = 0
    for _, name, form, conversion in string.Formatter().parse(check.text):
        if name is not None:
            places += 1
            if name or form or conversion:
                raise ValueError(f"the text {cut(check.text)} has a placeholder that is not {{}}")
    if places != len(check.dims):
        raise ValueError(f"the text {cut(check.text)} has {places} placeholders for {len(check.dims)} numbers")
