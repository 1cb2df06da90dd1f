"""The time to load a language model, and its parts: `python -m bench.load [FOLDER] [--kind int4] [--layers 16] [--times 4]`.

FOLDER has a decoder in onnxruntime-genai's layout. Without it, a Llama of 1.1 billion random parameters is written, as for
`bench.decode`. The first load of a process imports the compiler and opens the device; later ones show the cost of each session.
`--official` loads with the official plugin. Times are in milliseconds. A part is included in the one that it is indented under,
and `opens a device` runs in parallel.
"""

from __future__ import annotations

import argparse
import importlib
import os
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .decode import llama

PACKAGE = "onnxruntime_ep_wgpu."
PARTS = {
    "device.contexts:Context._open": "opens a device",
    "plugin.session:SessionState.decide": "decides",
    "plugin.session:SessionState.compile": "compiles",
    "plugin.assign.graph:read": "reads ONNX Runtime's graph",
    "plugin.compiling:claim": "lowers it",
    "plugin.compiling:compile_lowered": "makes a Program",
    "compiler.compile:kernels_of": "finds kernels",
    "compiler.compile:_assemble": "writes WGSL",
    "plugin.group:Executable": "uploads weights",
    "plugin.group:_ForNextDevice.keep": "notes where weights lie",
}


class Clock:
    """Times calls, nested by caller."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, str, float]] = []
        self._depth = threading.local()

    def times(self, place: str, what: str) -> None:
        module, _, name = place.partition(":")
        owner: Any = importlib.import_module(PACKAGE + module)
        *classes, last = name.split(".")
        for it in classes:
            owner = getattr(owner, it)
        setattr(owner, last, self._timed(getattr(owner, last), what))

    def _timed(self, function: Callable[..., Any], what: str) -> Callable[..., Any]:
        def timed(*args: Any, **more: Any) -> Any:
            depth = self._depth.value = getattr(self._depth, "value", 0) + 1
            at = len(self.rows)
            self.rows.append((depth, what, 0.0))
            began = time.perf_counter()
            try:
                return function(*args, **more)
            finally:
                self.rows[at] = (depth, what, time.perf_counter() - began)
                self._depth.value -= 1

        return timed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--kind", default="int4", help="of the model that is written: int4, int4-fp32, fp16 or fp32")
    parser.add_argument("--layers", type=int, default=16, help="of the model that is written")
    parser.add_argument("--times", type=int, default=4)
    parser.add_argument("--official", action="store_true", help="with the plugin onnxruntime-ep-webgpu")
    args = parser.parse_args()
    os.environ["WGPU_EP_CACHE"] = "off"  # so that compilation is measured
    with tempfile.TemporaryDirectory() as scratch:
        loads(args.folder or llama(Path(scratch), args.kind, args.layers, 8192), args.times, args.official)


def loads(folder: Path, times: int, official: bool) -> None:
    import onnxruntime_genai as og

    plugin = importlib.import_module("onnxruntime_ep_webgpu" if official else "onnxruntime_ep_wgpu")
    og.register_execution_provider_library("webgpu_ep", str(plugin.get_library_path()))
    clock = Clock()
    for number in range(times):
        config = og.Config(str(folder))
        config.clear_providers()
        config.append_provider("webgpu")
        began, busy = time.perf_counter(), time.process_time()
        if not number and not official:
            importlib.import_module(PACKAGE + "plugin.provider")  # otherwise the first session imports it
            print(f"imports {1e3 * (time.perf_counter() - began):.0f}")
            for place, what in PARTS.items():
                clock.times(place, what)
        model = og.Model(config)
        took, used = time.perf_counter() - began, time.process_time() - busy
        print(f"load {number + 1}: {1e3 * took:.0f}, CPU time of all threads {1e3 * used:.0f}")
        for depth, what, seconds in clock.rows:
            print(f"{'  ' * depth}{what} {1e3 * seconds:.0f}")
        clock.rows.clear()
        del model


if __name__ == "__main__":
    main()
