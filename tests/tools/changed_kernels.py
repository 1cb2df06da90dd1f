"""Kernels that are wrong, for tests of what finds them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from onnxruntime_ep_wgpu.compiler import compile
from onnxruntime_ep_wgpu.plugin import compiling


def change_kernels(monkeypatch: pytest.MonkeyPatch, change: Callable[[str], str]) -> None:
    """Every text of a kernel that is compiled from here on is changed so."""
    right = compile.compile_lowered

    def wrong(*arguments: Any) -> Any:
        program = right(*arguments)
        kernels = (dataclasses.replace(k, wgsl=tuple(map(change, k.wgsl))) for k in program.kernels)
        return dataclasses.replace(program, kernels=tuple(kernels))

    monkeypatch.setattr(compiling, "compile_lowered", wrong)
