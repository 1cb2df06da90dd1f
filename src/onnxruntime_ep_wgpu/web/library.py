"""Loads the JavaScript library from the wheel. In: nothing. Out: its module, imported once."""

from __future__ import annotations

import base64
from functools import cache
from pathlib import Path
from typing import Any

from ..errors import DeviceError

BUNDLE = Path(__file__).parent / "ort.wgpu.whole.min.mjs"


@cache
def _importing() -> Any:
    """Returns the promise of the module, cached so that all callers wait for the same one."""
    try:
        from pyodide.code import run_js
    except ImportError:
        raise DeviceError(
            "onnxruntime_ep_wgpu.web runs in Pyodide; in Python itself, use onnxruntime_ep_wgpu.session"
        ) from None
    if not BUNDLE.exists():
        raise DeviceError(f"{BUNDLE.name} is missing: install the wheel py3-none-any, made by scripts/pyodide_wheel")
    # A file in the wheel has no URL, so the module's text becomes a data URL.
    text = base64.b64encode(BUNDLE.read_bytes()).decode()
    return run_js(f"import('data:text/javascript;base64,{text}')")


async def library() -> Any:
    return await _importing()


async def support() -> tuple[bool, str]:
    """Returns whether exported models run here, and if not, the reason."""
    found = await (await library()).checkWebGPUSupport()
    return bool(found.supported), str(getattr(found, "reason", None) or "")
