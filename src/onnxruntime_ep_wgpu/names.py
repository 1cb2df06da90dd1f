"""The names of the provider in ONNX Runtime, and which one reaches it. `registration.py` warns about the other one.

Clients search for devices of `WebGpuExecutionProvider`, the name of ONNX Runtime's own provider. Before ONNX Runtime 1.32,
`providers=["WebGpuExecutionProvider"]` does not reach a plugin library: the name means the built-in provider. Builds without
that provider, as on PyPI, create the session on the CPU without a warning. Therefore the devices exist under both names, and
`PROVIDER` is the name to pass as text, which works in every version.
"""

from __future__ import annotations

EP_NAME = "WebGpuExecutionProvider"
PROVIDER = "WgpuExecutionProvider"
NAMES = (EP_NAME, PROVIDER)
VENDOR = "onnxruntime-ep-wgpu"
"""Distinguishes this package's devices and compiled models from those of other providers of the same name."""
REGISTRATION = "onnxruntime_ep_wgpu"
"""The name under which this package registers its own library. Programs choose other names."""

GIVEN_BACK = (1, 32)
"""From this version on, ONNX Runtime searches registered libraries for EP_NAME too, if it has no such provider built in."""


def version(text: str) -> tuple[int, ...]:
    """Returns the first two numbers of a version of ONNX Runtime."""
    return tuple(map(int, text.split(".")[:2]))


def reserves_name(ort_version: str) -> bool:
    """Returns whether this ONNX Runtime reserves EP_NAME, passed as text, for its own provider."""
    return version(ort_version) < GIVEN_BACK


def pass_this(ort_version: str) -> str:
    """Returns the advice to pass PROVIDER instead of EP_NAME, with the reason, for a version that reserves EP_NAME."""
    return (
        f"pass providers=[{PROVIDER!r}] (onnxruntime_ep_wgpu.PROVIDER): onnxruntime {ort_version} reserves {EP_NAME!r},"
        " passed as text, for its own provider, and creates the session on the CPU without a warning"
    )
