"""The names of the provider in ONNX Runtime, and which of them reaches it: `registration.py` warns about the other.

Clients look for devices of `WebGpuExecutionProvider`, the name of ONNX Runtime's own provider. Passed as text,
`providers=["WebGpuExecutionProvider"]`, that name does not reach a library before ONNX Runtime 1.32: it is taken for the
provider that ONNX Runtime may have been built with, and when it was not, as in the packages on PyPI, the session is made on
the CPU and nothing says so. So the devices are there under both names, and `PROVIDER` is the one to pass as text, which
reaches them in every version.
"""

from __future__ import annotations

EP_NAME = "WebGpuExecutionProvider"
PROVIDER = "WgpuExecutionProvider"
NAMES = (EP_NAME, PROVIDER)
VENDOR = "onnxruntime-ep-wgpu"
"""What distinguishes this package's devices and compiled models from those of others whose provider has the same name."""
REGISTRATION = "onnxruntime_ep_wgpu"
"""Under which name this package registers its library by itself. Programs choose other names."""

GIVEN_BACK = (1, 32)
"""Since this version ONNX Runtime asks the registered libraries for EP_NAME as well, when it was built without."""


def version(text: str) -> tuple[int, ...]:
    """The first two numbers of a version of ONNX Runtime."""
    return tuple(map(int, text.split(".")[:2]))


def kept(ort_version: str) -> bool:
    """Whether this ONNX Runtime keeps EP_NAME, passed as text, for itself."""
    return version(ort_version) < GIVEN_BACK


def pass_this(ort_version: str) -> str:
    """What to pass instead of EP_NAME, and why, to an ONNX Runtime that keeps it."""
    return (
        f"pass providers=[{PROVIDER!r}] (onnxruntime_ep_wgpu.PROVIDER): onnxruntime {ort_version} takes {EP_NAME!r}, passed"
        " as text, for a provider of its own and makes a session on the CPU without a word"
    )
