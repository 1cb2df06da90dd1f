"""Processes that are interrupted many times while they register the library and list its devices for the first time.

In: how many, a seed, and whether ONNX Runtime's function is called or this package's. Out: one line, the number of interrupts;
exit code 0. A child is forked, with nothing of this package imported, is interrupted in BURSTS bursts at random moments, and must
end with the library registered, its devices there and a session that runs; it may print nothing.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
import traceback

import numpy as np
import onnxruntime as ort

from tests.plugin import models
from tests.plugin.storms import burst, uninterrupted

BURSTS = 40


# The library was registered by a call that an interrupt ended later; ONNX Runtime's text of an interrupt, which follows; what
# Python makes of an interrupt while a class is made.
EXPECTED = ("already registered", "KeyboardInterrupt", "Error calling __set_name__")


def register(whose: str) -> None:
    try:
        import onnxruntime_ep_wgpu as webgpu_ep

        if whose == "ours":
            webgpu_ep.register("storm")
        else:
            ort.register_execution_provider_library("storm", webgpu_ep.get_library_path())
    except Exception as error:
        if not any(text in str(error) for text in EXPECTED):
            raise


def child(whose: str, ready: int, go_on: int) -> None:
    def stormy() -> None:
        os.write(ready, b"+")  # in here, where an interrupt may come
        while os.read(go_on, 1):
            register(whose)
        # The storm is over, and its end can be read again; a late interrupt, which another thread has got, changes nothing.
        signal.signal(signal.SIGINT, lambda *_: None)

    uninterrupted(stormy)
    register(whose)
    import onnxruntime_ep_wgpu as webgpu_ep

    devices = [it for it in ort.get_ep_devices() if it.ep_name == webgpu_ep.PROVIDER]
    assert devices, "no device is shown"
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.add_provider_for_devices(devices[:1], {})
    x = np.ones((2, 8), np.float32)
    np.testing.assert_array_equal(ort.InferenceSession(models.square(), options).run(None, {"x": x})[0], x)
    assert webgpu_ep.session(models.square()).run(None, {"x": x})[0].shape == x.shape


def storm(pid: int, chance: random.Random, go_on: int) -> int:
    """Sends pairs and triples of interrupts, microseconds apart, to a process that is registering; how many."""
    sent = 0
    for _ in range(BURSTS):
        os.write(go_on, b"+")
        time.sleep(chance.random() ** 2 * 0.03)
        sent += burst(pid, chance)
    os.close(go_on)
    return sent


def main(count: int, seed: int, whose: str) -> None:
    chance, sent = random.Random(seed), 0
    for _ in range(count):
        ready, go_on = os.pipe(), os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(go_on[1])  # so that the parent's end is the only one
            try:
                child(whose, ready[1], go_on[0])
                os._exit(0)
            except BaseException:
                signal.signal(signal.SIGINT, signal.SIG_IGN)
                traceback.print_exc()
                os._exit(1)
        os.close(ready[1])
        os.read(ready[0], 1)
        sent += storm(pid, chance, go_on[1])
        _, status = os.waitpid(pid, 0)
        assert status == 0, f"process {pid} ended with {status}"
        os.close(ready[0])
        os.close(go_on[0])
    print(sent)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
