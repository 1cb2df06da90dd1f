"""Ctrl-C during a run: the user gets a KeyboardInterrupt, wherever in the run it arrived, and the session stays usable."""

from __future__ import annotations

import ast
import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import onnxruntime_ep_wgpu as webgpu_ep
from onnxruntime_ep_wgpu import _ort
from onnxruntime_ep_wgpu.plugin import abi, callbacks, watch
from onnxruntime_ep_wgpu.plugin import tensors as compute
from tests import patience

from . import models
from .registering import BURSTS

ROOT = Path(__file__).resolve().parents[2]

PROGRAM = """
import os, random, signal, sys, threading
import numpy as np, onnxruntime as ort, onnxruntime_ep_wgpu as webgpu_ep
from tests.plugin import models
options = ort.SessionOptions()
options.log_severity_level = 4
if sys.argv[1] == "ours":
    session = webgpu_ep.session(models.slow(), sess_options=options)
else:
    options.add_provider_for_devices(webgpu_ep.devices()[:1], {})
    session = ort.InferenceSession(models.slow(), options)
x = np.ones((64, 64), np.float32)
def run(): np.testing.assert_array_equal(session.run(None, {"x": x})[0], x)
run()
interrupts = 0
for seed in range(int(sys.argv[2])):
    try:
        threading.Timer(random.Random(seed).random() / 30, os.kill, (os.getpid(), signal.SIGINT)).start()
        while True:
            run()
    except KeyboardInterrupt:
        interrupts += 1
run()
print(interrupts)
"""


needs_kill = pytest.mark.skipif(sys.platform == "win32", reason="os.kill ends the process on Windows")
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked")


@pytest.mark.costly
@needs_kill
@pytest.mark.parametrize("whose", ["ours", "onnxruntime's"])
@pytest.mark.parametrize("count", [10, pytest.param(300, marks=pytest.mark.exhaustive)])
def test_an_interrupt_at_any_moment_reaches_the_user_and_the_session_goes_on(whose: str, count: int) -> None:
    command = [sys.executable, "-c", PROGRAM, whose, str(count)]
    done = patience.run(command, env=patience.here(), cwd=ROOT)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{count}\n", "")


@needs_kill
@pytest.mark.parametrize(
    ("bursts", "seeds"), [(100, [1]), pytest.param(3000, range(2, 6), marks=pytest.mark.exhaustive)]
)
def test_interrupts_at_random_moments_of_anything_lose_nothing_and_hang_nothing(
    bursts: int, seeds: Sequence[int]
) -> None:
    command = [sys.executable, "-m", "tests.plugin.interrupted", str(bursts)]
    processes = [
        patience.started([*command, str(seed), whose], env=patience.here(), cwd=ROOT)
        for seed in seeds
        for whose in ("ours", "theirs")
    ]
    for process in processes:
        done = patience.ended(process)
        assert (done.returncode, done.stderr) == (0, ""), (done.args, done.stdout, done.stderr)
        assert int(done.stdout) >= bursts


@pytest.mark.costly
@needs_fork
@pytest.mark.parametrize("whose", ["ours", "theirs"])
@pytest.mark.parametrize(
    ("count", "seed"), [(1, 1), *(pytest.param(40, seed, marks=pytest.mark.exhaustive) for seed in (2, 3))]
)
def test_interrupts_at_random_moments_of_the_first_registration_lose_no_device(
    count: int, seed: int, whose: str
) -> None:
    command = [sys.executable, "-m", "tests.plugin.registering", str(count), str(seed), whose]
    done = patience.run(command, env=patience.here(), cwd=ROOT)
    # Python itself prints interrupts that it loses while it imports a module.
    assert done.returncode == 0, "\n".join([" ".join(command), done.stdout, done.stderr])
    assert int(done.stdout) >= count * BURSTS


def test_an_interrupt_in_compute_is_raised_by_the_run_of_our_session(monkeypatch: pytest.MonkeyPatch) -> None:
    session = webgpu_ep.session(models.square())
    x = np.ones((2, 8), np.float32)

    def interrupted(*_: object) -> None:
        signal.raise_signal(signal.SIGINT)

    with monkeypatch.context() as patch:
        patch.setattr(compute.Tensors, "inputs", interrupted)
        with pytest.raises(KeyboardInterrupt):
            session.run(None, {"x": x})
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], x)


def test_a_session_of_onnx_runtime_itself_ends_the_run_before_it_is_interrupted(open_session: Any) -> None:
    """An error would be ONNX Runtime's, and hide the interrupt from `except KeyboardInterrupt`."""
    session, x = open_session(models.square()), np.ones((2, 8), np.float32)
    inputs, interrupts = compute.Tensors.inputs, []

    def interrupted(self: compute.Tensors, valued: frozenset[int]) -> Any:
        if not interrupts:
            interrupts.append(1)
            signal.raise_signal(signal.SIGINT)
        return inputs(self, valued)

    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(compute.Tensors, "inputs", interrupted)
        session.run(None, {"x": x})
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], x)


def test_an_interrupt_in_a_call_that_cannot_fail_waits_for_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Alloc and Free have no status to return: they are finished, and the interrupt comes when Python goes on."""
    from onnxruntime_ep_wgpu.plugin.memory import pool
    from onnxruntime_ep_wgpu.plugin.memory import space as memory

    session = webgpu_ep.session(models.square())
    x = np.ones((pool.MOST_BYTES // 32 + 1, 8), np.float32)  # what is smaller Python does not free every time
    session.run(None, {"x": x})
    free, interrupts = memory.AddressSpace.free, []

    def interrupted(self: memory.AddressSpace, start: int, *on_freed: Any) -> None:
        if not interrupts:
            interrupts.append(start)
            signal.raise_signal(signal.SIGINT)
        free(self, start, *on_freed)

    before = memory.space().bytes_in_use
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(memory.AddressSpace, "free", interrupted)
        for _ in range(2):
            session.run(None, {"x": x})
    assert interrupts
    assert memory.space().bytes_in_use == before
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], x)


@pytest.mark.parametrize("method", ["reserve", "free"])
def test_an_exception_of_a_handler_in_a_call_that_cannot_fail_is_raised_by_the_run(
    method: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """As that of a time limit by SIGALRM: an allocation is made all the same, and a range is freed."""
    from onnxruntime_ep_wgpu.plugin.memory import pool
    from onnxruntime_ep_wgpu.plugin.memory import space as memory

    class TooLong(Exception):
        pass

    session = webgpu_ep.session(models.square())
    x = np.ones((pool.MOST_BYTES // 32 + 1, 8), np.float32)  # what is smaller Python does not free every time
    session.run(None, {"x": x})
    original, raised = getattr(memory.AddressSpace, method), []

    def interrupted(self: memory.AddressSpace, *arguments: Any) -> Any:
        if not raised:
            raised.append(1)
            raise TooLong("at most a second")
        return original(self, *arguments)

    before = memory.space().bytes_in_use
    with monkeypatch.context() as patch, pytest.raises(TooLong, match="at most a second"):
        patch.setattr(memory.AddressSpace, method, interrupted)
        for _ in range(2):
            session.run(None, {"x": x})
    assert memory.space().bytes_in_use == before
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], x)
    assert capfd.readouterr().err == ""


@contextlib.contextmanager
def answered_by(function: Callable[..., None]) -> Iterator[None]:
    """Compute is on_freed by another Python function for a while."""
    find = callbacks._method("compute")
    name = "OrtNodeComputeInfo_Compute"
    try:
        _ort.ffi.def_extern(name=f"py_{name}", onerror=_ort.left)(function)
        yield
    finally:
        callbacks.export(name, find, repeatable=True, device=True)


def test_a_callback_without_an_answer_is_asked_again_and_cannot_be_interrupted_then() -> None:
    session, x, asked = webgpu_ep.session(models.square()), np.ones((2, 8), np.float32), []

    def interrupted(again: int, this: Any, *_: object) -> None:
        asked.append(again)
        if again:
            signal.raise_signal(signal.SIGINT)  # noted, as this is the second time
        if again < 3:
            raise KeyboardInterrupt
        with watch.watching("") as seen, seen.active:
            ort = callbacks.held[abi.address(this)].ort
            _ort.lib.wgpu_answer_pointer(ort.status(_ort.error(), "all the same"))

    with answered_by(interrupted), pytest.raises(KeyboardInterrupt):
        try:
            session.run(None, {"x": x})
        except Exception as error:
            assert "all the same" in str(error)
            [0].sort()  # where the interrupt that was noted may come
    assert asked == [0, 1, 2, 3]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], x)


def test_a_callback_that_is_never_answered_is_an_error_and_no_success() -> None:
    """A status of NULL would tell ONNX Runtime that outputs were computed."""
    session, x = webgpu_ep.session(models.square()), np.ones((2, 8), np.float32)

    def broken(*_: object) -> None:
        raise MemoryError

    with answered_by(broken), pytest.raises(Exception, match="Python did not answer OrtNodeComputeInfo_Compute"):
        session.run(None, {"x": x})
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], x)


def test_a_run_without_stack_is_an_error_and_the_session_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    session, x = webgpu_ep.session(models.square()), np.ones((2, 8), np.float32)
    failures = []
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)  # pytest's own needs stack

    def deeper() -> None:
        with contextlib.suppress(RecursionError):
            deeper()
        try:
            session.run(None, {"x": x})
        except Exception as error:
            failures.append(str(error))
            raise

    with contextlib.suppress(Exception):
        deeper()
    assert failures
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], x)


# Python code of theirs runs when objects die, where an interrupt is printed and lost, or holds a lock between two lines. `scale/`
# is a caller of sessions, with threads of its own, which no interrupt reaches.
UNSAFE = {
    "weakref": {"WeakKeyDictionary", "WeakValueDictionary", "WeakSet", "WeakMethod", "finalize"},
    "threading": {"Event", "Condition", "Semaphore", "Barrier", "Thread", "Timer"},
    "queue": {"Queue", "LifoQueue", "PriorityQueue"},
    "concurrent.futures": {"ThreadPoolExecutor", "ProcessPoolExecutor", "Future"},
}


@pytest.mark.every_case
@pytest.mark.parametrize(
    "path", [it for it in sorted((ROOT / "src").rglob("*.py")) if it.parent.name != "scale"], ids=lambda path: path.stem
)
def test_nothing_is_used_that_an_interrupt_leaves_half_done(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            assert node.attr not in UNSAFE.get(node.value.id, ()), node.lineno
        elif isinstance(node, ast.ImportFrom) and not node.level:
            assert not {alias.name for alias in node.names} & UNSAFE.get(node.module or "", set()), node.lineno
        elif isinstance(node, ast.FunctionDef):
            assert node.name != "__del__", node.lineno
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "weakref.ref":
            assert len(node.args) == 1, node.lineno
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "acquire":
            raise AssertionError(node.lineno)
