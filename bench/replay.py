"""The CPU cost of a replay: `python -m bench.replay [model ...]`, with model names of tests/zoo.

In: the first adapter. Out: microseconds per dispatch to record the dispatches in an encoder, to finish it and to submit the
command buffer. The cases are a long list of small dispatches, and the models' captures. Also the microseconds until ONNX
Runtime's `run_with_iobinding` returns, uncaptured and captured. Values are medians, with an idle GPU before each repetition.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import onnxruntime as ort

import onnxruntime_ep_wgpu as webgpu_ep
from bench.device_layer import KERNEL
from onnxruntime_ep_wgpu.device import Device, Recording, adapters, open_device, release_dead
from onnxruntime_ep_wgpu.plugin import watch
from onnxruntime_ep_wgpu.tools._output import show_pairs
from tests import zoo

DISPATCHES = 1000
REPEATS = 100


def phases(device: Device, recording: Recording) -> dict[str, str]:
    """Returns microseconds per dispatch of recording, finishing and submitting; after a run, and repeated without running.

    A software adapter calculates on the same cores, so after a run the CPU caches are cold.
    """
    encoder, ran, alone = device._encoder, [], []
    for _ in range(REPEATS):
        device.wait()
        start = time.perf_counter()
        encoding = encoder.record(recording)
        recorded = time.perf_counter()
        commands = encoder.finish(encoding)
        finished = time.perf_counter()
        device.queue.submit([commands], "the replay")
        ran.append((recorded - start, finished - recorded, time.perf_counter() - finished))
    device.wait()
    for _ in range(REPEATS):
        start = time.perf_counter()
        encoding = encoder.record(recording)
        recorded = time.perf_counter()
        commands = encoder.finish(encoding)
        alone.append((recorded - start, time.perf_counter() - recorded))
        del commands
        release_dead()
    count = len(recording)
    record, finish, submit = (statistics.median(column) * 1e6 / count for column in zip(*ran, strict=True))
    record_alone, finish_alone = (statistics.median(column) * 1e6 / count for column in zip(*alone, strict=True))
    return {
        f"{count} dispatches, replayed": f"record {record:.2f}, finish {finish:.2f}, submit {submit:.2f} us each",
        f"{count} dispatches, encoded in a row": f"record {record_alone:.2f}, finish {finish_alone:.2f} us each",
    }


def long_list(device: Device) -> Recording:
    """Returns small dispatches with many pipelines and bind groups, as in a model."""
    kernels = [device.pipeline(KERNEL + "\n" * i, ("read", "read_write"), f"add {i}") for i in range(20)]
    buffers = [device.buffer(256) for _ in range(41)]
    return device.record(
        [
            (
                kernels[i % 20],
                device.bind_group(kernels[0], [(buffers[i % 41], 0, 256), (buffers[(i + 1) % 41], 0, 256)]),
                (1, 1, 1),
            )
            for i in range(DISPATCHES)
        ]
    )


def returns(run: Callable[[], object], device: Device) -> float:
    """Returns the median microseconds until `run` returns."""
    seconds = []
    for _ in range(REPEATS):
        device.wait()
        start = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds[1:]) * 1e6


def bound(session: Any, feed: dict[str, np.ndarray]) -> Any:
    """Returns a binding of all inputs and outputs to device tensors."""
    binding = session.io_binding()
    for name, array in feed.items():
        binding.bind_ortvalue_input(name, ort.OrtValue.ortvalue_from_numpy(array, "webgpu", 0))
    for value, result in zip(session.get_outputs(), session.run(None, feed), strict=True):
        place = ort.OrtValue.ortvalue_from_shape_and_type(result.shape, result.dtype, "webgpu", 0)
        binding.bind_ortvalue_output(value.name, place)
    return binding


def recording_of(device: Device, run: Callable[[], object]) -> Recording:
    """Returns the dispatches of a run. Python submits it, because it is the first one with its tensors."""
    submit, seen = device.submit, []

    def watched(recording: Any, *copies: Any) -> None:
        seen.append(recording)
        submit(recording, *copies)

    device.submit = watched  # type: ignore[method-assign]
    try:
        run()
    finally:
        del device.submit
    return next(it for it in seen if len(it))


def model(name: str) -> dict[str, str]:
    case, taken = zoo.load(name), []
    for capture in (0, 1):
        session = webgpu_ep.session(case.path, enableGraphCapture=capture)
        state = watch.live()[-1].state
        assert state is not None
        device, binding = state.device(), bound(session, case.inputs(0))
        run = lambda s=session, b=binding: s.run_with_iobinding(b)  # noqa: E731
        recording = recording_of(device, run)
        taken.append(returns(run, device))
    shown = {f"{name}, {key}": value for key, value in phases(device, recording).items()}
    return shown | {f"{name}, run_with_iobinding": f"{taken[0]:.0f} us, captured {taken[1]:.0f} us"}


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.replay", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    choices = [*zoo.NAMES, *zoo.FULL]
    parser.add_argument(
        "models", nargs="*", choices=[*choices, []], metavar="MODEL", help=f"of {', '.join(choices)} (minilm)"
    )
    names = parser.parse_args().models
    device = open_device(adapters()[0])
    shown = {"adapter": device.target.name, **phases(device, long_list(device))}
    for name in names or ["minilm"]:
        shown |= model(name)
    show_pairs(shown)


if __name__ == "__main__":
    main()
