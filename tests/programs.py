"""Runs random programs, one per seed, in a process of its own: what they leave behind, and threads that share one.

In: a function that runs the program of a seed. Out: a line per failure, and an exit code.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterable
from typing import Any

import onnxruntime as ort

import onnxruntime_ep_wgpu as webgpu_ep
from onnxruntime_ep_wgpu.device import release_dead
from onnxruntime_ep_wgpu.device.contexts import contexts
from onnxruntime_ep_wgpu.plugin.memory import space as memory


def left() -> tuple[int, int]:
    """Bytes of tensors, and devices that are open."""
    while gc.collect():
        pass
    release_dead()
    return memory.space().bytes_in_use, sum(it.current() is not None for it in contexts())


def run_programs(run: Callable[[int], None], seed: int, count: int) -> int:
    """Runs `count` programs from a seed on. A program that raises, or leaves tensors or devices, is wrong."""
    ort.set_default_logger_severity(4)
    webgpu_ep.devices()
    bad = 0
    for it in range(seed, seed + count):
        try:
            run(it)
        except Exception as error:
            print(f"{it}: {type(error).__name__}: {error}", flush=True)
            bad += 1
        if left() != (0, 0):
            print(f"{it}: {left()} are left", flush=True)
            bad += 1
    print(f"{count} programs, {bad} wrong")
    return int(bad > 0)


def in_threads(work: Callable[[Any], None], each: Iterable[Any]) -> None:
    """Calls `work` with each item in a thread of its own. Raises the first error of a thread."""
    errors: list[BaseException] = []

    def watched(item: Any) -> None:
        try:
            work(item)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=watched, args=(it,)) for it in each]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
