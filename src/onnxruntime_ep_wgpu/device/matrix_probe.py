"""Tests whether an adapter's matrix units multiply correctly. Some drivers list units that give wrong products.

In: an adapter that lists units. Out: the content of `matrix_refusals`. Invariants: an adapter is probed once per driver and
library, and only if units would be used. Comparisons are exact, because products of small integers are. Only units that
kernels use are probed.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from random import Random

from ..errors import DeviceLostError, ShaderError, WgpuEpError
from ..program import target
from ..program.target import MatrixUnit
from .adapters import Adapter
from .buffers import BufferBinding
from .device import Device
from .matrix_refusals import Refusals, recall, remember

STEPS = 2  # of k: each accumulates onto the sums of the previous step
LARGEST = {"f16": 8, "i8": 128}  # of operands: every sum is exact, also of halves accumulated in f16
_PACKED = {"f16": "e", "i8": "b", "f32": "f", "i32": "i"}
_HEAD = (
    "enable f16;\nenable chromium_experimental_subgroup_matrix;\n"
    "diagnostic(off, chromium.subgroup_matrix_uniformity);\n"
)
_lock = threading.Lock()


def probe(adapter: Adapter) -> Refusals:
    """Returns the adapter's units that give wrong products, with the reasons. Probes the adapter unless that is known.

    Raises DeviceError if no device can be opened.
    """
    facts = adapter.probed_by
    with _lock:
        refused = recall(facts)
        if refused is None:
            refused, lasting = _probe(adapter)
            remember(facts, adapter.name, refused, lasting)
        return refused


def _probe(adapter: Adapter) -> tuple[Refusals, bool]:
    """Returns the refused units, and whether later processes may rely on the result."""
    plain = replace(adapter, matrices=())
    found: dict[str, str] = {}
    device: Device | None = None
    lasting = True
    for unit in adapter.matrices:
        if not unit.is_used:
            continue
        if device is None or device.lost:
            device = Device(plain, plain.target())
        try:
            why = fault(device, unit)
        except ShaderError as error:
            why = f"does not compile ({' '.join(str(error).split())[:120]})"
        except DeviceLostError:
            why, lasting = "the device was lost", False
        except WgpuEpError as error:
            why, lasting = f"cannot be run ({' '.join(str(error).split())[:120]})", False
        if why:
            found[str(unit)] = why
    return found, lasting


def fault(device: Device, unit: MatrixUnit, text: Callable[[MatrixUnit], str] | None = None) -> str:
    """Returns the error in the products of a unit; "" if all are correct.

    `text` generates the functions that multiply. Raises ShaderError, DeviceError.
    """
    m, n, k = unit.m, unit.n, STEPS * unit.k
    random, largest = Random(f"{unit}"), LARGEST[unit.operand]
    left, right = (
        [[random.randint(-largest, largest - 1) for _ in range(columns)] for _ in range(rows)]
        for rows, columns in ((m, k), (k, n))
    )
    across = [list(column) for column in zip(*right, strict=True)]
    numbers = [value for rows in (left, right, across) for row in rows for value in (*row, *[0] * unit.together)]
    data = struct.pack(f"={len(numbers)}{_PACKED[unit.operand]}", *numbers)
    expected = [sum(a * b for a, b in zip(row, column, strict=True)) for row in left for column in across]
    operands, results = device.buffer(len(data)), device.buffer(8 * m * n)
    pipeline = device.pipeline(wgsl(unit, text), ("read", "read_write"), f"matrix units {unit}")
    device.upload(operands, 0, data)
    bound = device.bind_group(pipeline, [BufferBinding(operands, 0, len(data)), BufferBinding(results, 0, 8 * m * n)])
    device.submit([(pipeline, bound, (1, 1, 1))])
    found = bytearray(8 * m * n)
    device.download(results, 0, found)
    values = struct.unpack(f"={2 * m * n}{_PACKED[unit.result]}", found)
    wrong = sum(one != other for one, other in zip(values, expected * 2, strict=True))  # NaN is wrong too
    return f"{wrong} of {len(values)} results are wrong" if wrong else ""


def wgsl(unit: MatrixUnit, text: Callable[[MatrixUnit], str] | None = None) -> str:
    """The kernel that multiplies two matrices in `STEPS` of k, with the right operand in row-major and in column-major order."""
    m, n, k, together = unit.m, unit.n, STEPS * unit.k, unit.together
    a_stride, b_stride = k + together, n + together  # 16 bytes of padding per row, as in the compiled kernels
    sizes = {
        "A_STRIDE": a_stride,
        "B_STRIDE": b_stride,
        "B_AT": m * a_stride,
        "ACROSS_AT": m * a_stride + k * b_stride,
        "TOGETHER": together,
        "PARTS": (m * a_stride + k * b_stride + n * a_stride) // together,
        "FOURS": m * n // 4,
        "STEPS": STEPS,
        "M": m,
        "N": n,
        "K": unit.k,
    }
    constants = "".join(f"const {name} = {value}u;\n" for name, value in sizes.items())
    memory = "const MEMORY = max(PARTS, 2u * FOURS);\n"
    main = _text(Path(__file__).with_name("matrix_probe.wgsl"))
    main = main.replace("$LANES", f"{unit.subgroup}u").replace("$SUM", unit.result)
    return (text or functions)(unit) + constants + memory + main


def functions(unit: MatrixUnit) -> str:
    """The functions that multiply with subgroup matrices, in the text that compiled kernels use."""
    values = {"$UNIT_M": unit.m, "$UNIT_N": unit.n, "$UNIT_K": unit.k, "$TOGETHER": unit.together}
    text = _text(Path(target.__file__).with_name("matrices_units.wgsl"))
    for name, value in values.items():
        text = text.replace(name, f"{value}u")
    return _HEAD + text.replace("$OPERAND", unit.operand).replace("$SUM", unit.result)


@cache
def _text(path: Path) -> str:
    return path.read_text("utf-8")
