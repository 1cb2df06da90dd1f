"""A forked process says that it cannot use the GPU, and hangs nowhere; a fork before the first use is like none."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests import patience

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")

START = """
import gc, multiprocessing, os, signal, subprocess, sys, threading
import numpy as np, onnxruntime as ort, onnxruntime_ep_wgpu as webgpu_ep
from tests.plugin import models
webgpu_ep.PROVIDER
x = np.ones((2, 8), np.float32)
def value(): return ort.OrtValue.ortvalue_from_numpy(x, "webgpu", 0)
def stock():
    settings = ort.SessionOptions()
    settings.log_severity_level = 4
    found = [device for device in ort.get_ep_devices() if device.ep_name == webgpu_ep.get_ep_name()]
    settings.add_provider_for_devices(found[:1], {})
    return ort.InferenceSession(models.square(), settings, enable_fallback=0)
def right(session): np.testing.assert_array_equal(session.run(None, {"x": x})[0], x)
def used():
    session, theirs = webgpu_ep.session(models.square()), stock()
    right(session), right(theirs)
    return session, theirs, value()
def in_child(work):
    def start():
        work()
    child = multiprocessing.get_context("fork").Process(target=start)
    child.start()
    child.join()
    assert child.exitcode == 0, (work, child.exitcode)
def refused(work):
    def tried():
        try:
            work()
        except Exception as error:
            assert 'multiprocessing.get_context("spawn")' in str(error), repr(error)
            return
        raise AssertionError("nothing was raised")
    in_child(tried)
"""

WAYS_IN = {
    "registering": "webgpu_ep.register",
    "devices": "webgpu_ep.devices",
    "a session": "lambda: webgpu_ep.session(models.square())",
    "a session of onnxruntime": "stock",
    "a run": "lambda: session.run(None, {'x': x})",
    "a run with other shapes": "lambda: session.run(None, {'x': x[:1]})",
    "a run of a session of onnxruntime": "lambda: theirs.run(None, {'x': x})",
    "a binding": "lambda: theirs.run_with_iobinding(bound)",
    "reading a tensor": "kept.numpy",
    "writing a tensor": "lambda: kept.update_inplace(x)",
    "a new tensor": "value",
    "a tensor as a buffer": "lambda: webgpu_ep.buffer_of(kept)",
    "the device of a session": "lambda: webgpu_ep.wgpu_device_of(session)",
    "a device": "lambda: open_device(adapters()[0])",
    "another context": "lambda: open_device(adapters()[0], 77)",
    "memory": "lambda: device.buffer(64)",
    "a kernel": "lambda: device.pipeline('', (), 'x')",
    "a wait": "device.wait",
}


def python(program: str) -> None:
    done = patience.run([sys.executable, "-c", START + program], env=patience.here(), cwd=ROOT)  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_every_way_in_says_to_use_spawn_and_the_parent_goes_on() -> None:
    tried = "\n".join(f"refused({way})" for way in WAYS_IN.values())
    python(f"""
from onnxruntime_ep_wgpu.device import adapters, open_device
session, theirs, kept = used()
device = open_device(adapters()[0])
bound = theirs.io_binding(); bound.bind_ortvalue_input("x", kept); bound.bind_output("y", "webgpu")
{tried}
def of_its_own_type():  # where Python raises it
    for call in (webgpu_ep.devices, lambda: webgpu_ep.session(models.square()), lambda: session.run(None, {{"x": x}})):
        try: call()
        except webgpu_ep.ForkError: continue
        raise AssertionError(call)
in_child(of_its_own_type)
right(session), right(theirs), right(webgpu_ep.session(models.square()))
assert (kept.numpy() == x).all()
""")


def test_a_child_that_uses_nothing_ends_well_whatever_it_inherits_and_drops() -> None:
    python("""
session, theirs, kept = used()
in_child(lambda: None)
def drops():
    global kept
    kept = None
    gc.collect()
in_child(drops)
child = os.fork()
if not child: os._exit(0)
assert os.waitpid(child, 0)[1] == 0
subprocess.run([sys.executable, "-c", "pass"], check=True)
subprocess.run([sys.executable, "-c", "pass"], check=True, preexec_fn=lambda: None)
right(session), right(theirs)
""")


ENDS = {
    "sys.exit()": 0,
    "sys.exit(3)": 3,
    "raise SystemExit": 0,
    "raise ValueError": 1,
    "del session, theirs, kept; gc.collect(); sys.exit(5)": 5,
    "print('written'); sys.exit()": 0,
}


FIRST = [("registered", "raise ValueError"), ("used", "del session, theirs, kept; gc.collect(); sys.exit(5)")]
REST = [(how, end) for how in ("registered", "used") for end in ENDS if (how, end) not in FIRST]


@pytest.mark.costly
@pytest.mark.parametrize(("how", "end"), [*FIRST, *(pytest.param(*it, marks=pytest.mark.exhaustive) for it in REST)])
def test_a_child_ends_as_any_program_does(how: str, end: str) -> None:
    """Not by os._exit, as multiprocessing ends children: with all that onnxruntime and drivers have registered for the exit."""
    begin = "session = theirs = kept = webgpu_ep.devices()" if how == "registered" else "session, theirs, kept = used()"
    python(f"""
{begin}
read, write = os.pipe()
child = os.fork()
if not child:
    os.dup2(write, 1); os.dup2(write, 2)
    {end}
os.close(write)
said = os.fdopen(read).read()
status = os.waitpid(child, 0)[1]
assert os.waitstatus_to_exitcode(status) == {ENDS[end]}, (status, said)
assert ("written" in said) == {"written" in end}
if {how == "used"}: right(session)
""")


@pytest.mark.parametrize("times", [1, pytest.param(20, marks=pytest.mark.exhaustive)])
def test_a_fork_while_other_threads_run_hangs_nothing(times: int) -> None:
    python(f"""
session, *_ = used()
stop = threading.Event()
def work():
    rows = 0
    while not stop.is_set():
        rows += 1
        session.run(None, {{"x": np.ones((1 + rows % 50, 8), np.float32)}})
threads = [threading.Thread(target=work) for _ in range(3)]
for thread in threads: thread.start()
for _ in range({times}):
    refused(webgpu_ep.devices)
    in_child(gc.collect)
stop.set()
for thread in threads: thread.join()
right(session)
""")


def test_a_fork_before_the_first_use_is_like_none() -> None:
    python("""
def works():
    for session in used()[:2]: right(session)
in_child(works)
in_child(works)
works()
in_child(lambda: None)
""")


SPAWNING = """
import multiprocessing, numpy as np, onnxruntime_ep_wgpu as webgpu_ep
from tests.plugin import models
webgpu_ep.PROVIDER
def work():
    x = np.ones((2, 8), np.float32)
    np.testing.assert_array_equal(webgpu_ep.session(models.square()).run(None, {"x": x})[0], x)
if __name__ == "__main__":
    work()
    child = multiprocessing.get_context("spawn").Process(target=work)
    child.start()
    child.join()
    raise SystemExit(child.exitcode)
"""


def test_a_spawned_process_works(tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text(SPAWNING)  # what is spawned imports the main module
    patience.run([sys.executable, str(tmp_path / "main.py")], env=patience.here(), check=True)
