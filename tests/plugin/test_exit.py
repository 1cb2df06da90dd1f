"""A process ends with 0 and says nothing, whatever is still alive."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests import patience

ROOT = Path(__file__).resolve().parents[2]

START = """
import gc, sys, threading
import numpy as np, onnxruntime as ort, onnxruntime_ep_wgpu as webgpu_ep
from onnxruntime_ep_wgpu import PROVIDER  # registering then has nothing to tell
from tests.plugin import models
x = np.ones((2, 8), np.float32)
def value(): return ort.OrtValue.ortvalue_from_numpy(x, "webgpu", 0)
def opened():
    session = webgpu_ep.session(models.square())
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], x)
    return session
"""

ENDINGS = {
    "only imported": "",
    "registered": "webgpu_ep.register()",
    "a live session": "kept = opened()",
    "a live session in a cycle": "kept = opened(); kept.me = kept; del kept",
    "a live device tensor": "webgpu_ep.register(); kept = value()",
    "a device tensor of a session that is gone": "s = opened(); kept = value(); del s; gc.collect()",
    "a live binding": "s = opened(); b = s.io_binding(); b.bind_ortvalue_input('x', value()); b.bind_output('y', 'webgpu')\n"
    "s.run_with_iobinding(b)",
    "unregistered": "webgpu_ep.register(); ort.unregister_execution_provider_library('onnxruntime_ep_wgpu')",
    "unregistered, then registered again": "s = opened(); del s; gc.collect()\n"
    "ort.unregister_execution_provider_library('onnxruntime_ep_wgpu'); opened()",
    "unregistered with a live session": "kept = opened(); ort.unregister_execution_provider_library('onnxruntime_ep_wgpu')",
    "unregistered, then the session is dropped": "kept = opened()\n"
    "ort.unregister_execution_provider_library('onnxruntime_ep_wgpu'); del kept; gc.collect()",
    "a tensor that outlives session and registration": "s = opened(); kept = value(); del s; gc.collect()\n"
    "ort.unregister_execution_provider_library('onnxruntime_ep_wgpu'); del kept; gc.collect()",
    "a tensor that outlives session, registration and interpreter": "s = opened(); kept = value(); del s; gc.collect()\n"
    "ort.unregister_execution_provider_library('onnxruntime_ep_wgpu')",
    "a tensor in a cycle": "webgpu_ep.register(); kept = value(); kept.me = kept; del kept",
    "copies after the last session": "s = opened(); v = value(); del s; gc.collect(); assert (v.numpy() == x).all()\n"
    "v.update_inplace(x * 2); assert (v.numpy() == x * 2).all()",
    "copies before any session, first in eight threads": "webgpu_ep.register()\n"
    "def work():\n v = value(); assert (v.numpy() == x).all(); done.append(1)\n"
    "done = []; ts = [threading.Thread(target=work) for _ in range(8)]\n"
    "[t.start() for t in ts]; [t.join() for t in ts]; assert len(done) == 8",
    "a preserved device": "s = webgpu_ep.session(models.square(), preserveDevice=1, deviceId=3); s.run(None, {'x': x})",
    # wgpu-py opens OpenGL too, which complains on a machine without a display.
    "a device of wgpu-py": "import os, tempfile; os.environ.setdefault('XDG_RUNTIME_DIR', tempfile.gettempdir())\n"
    "import wgpu; d = wgpu.gpu.request_adapter_sync().request_device_sync()\n"
    "s = webgpu_ep.session(models.square(), wgpu_device=d); s.run(None, {'x': x}); kept = value()",
    "a device given to wgpu-py": "d = webgpu_ep.wgpu_device_of(opened()); b = webgpu_ep.buffer_of(value())",
    "a failed session": "try: webgpu_ep.session(models.square(), nonsense=1)\nexcept webgpu_ep.OptionError: pass",
    "a failed run": "s = opened()\ntry: s.run(None, {'x': np.ones((2, 9), np.float32)})\nexcept Exception: pass",
    "threads that were running": "s = opened()\n"
    "ts = [threading.Thread(target=lambda: [s.run(None, {'x': x}) for _ in range(20)]) for _ in range(4)]\n"
    "[t.start() for t in ts]",
    "sys.exit": "kept = opened(); sys.exit(0)",
}


def python(program: str) -> subprocess.CompletedProcess[str]:
    return patience.run([sys.executable, "-c", program], env=patience.here(), cwd=ROOT)


ALONE = ("only imported", "sys.exit")
"""What leaves nothing to the others, or stops them."""


def test_the_process_ends_well_with_all_of_it_at_once() -> None:
    """But for what unregisters the library. Each has names of its own, which stay alive."""
    together = {name: it for name, it in ENDINGS.items() if name not in ALONE and "unregister" not in it}
    result = python(
        f"{START}\nalive = []\nfor name, program in {together!r}.items():\n"
        "    print(name)\n    alive.append(dict(globals()))\n    exec(program, alive[-1])"
    )
    assert (result.returncode, result.stdout.splitlines(), result.stderr) == (0, list(together), "")


FIRST = ("a tensor that outlives session, registration and interpreter", "unregistered with a live session", "sys.exit")


@pytest.mark.costly
@pytest.mark.parametrize(
    "ending", [pytest.param(it, marks=() if it in FIRST else pytest.mark.exhaustive) for it in ENDINGS]
)
def test_the_process_ends_well_with(ending: str) -> None:
    result = python(START + ENDINGS[ending])
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def test_importing_the_package_is_quick_and_brings_nothing() -> None:
    result = python(
        "import sys, onnxruntime_ep_wgpu\n"
        "onnxruntime_ep_wgpu.get_library_path(), onnxruntime_ep_wgpu.get_ep_names()\n"
        "print([name for name in ('numpy', 'onnx', 'onnx_ir', 'onnxruntime', 'wgpu', 'cffi', 'rich') if name in sys.modules])"
    )
    assert (result.stdout, result.stderr) == ("[]\n", "")


def test_nothing_is_sent_anywhere() -> None:
    """No socket is opened, by us or by what we import, from registration to a result."""
    guard = (
        "import socket\n"
        "def refuse(*a, **k): raise AssertionError('a socket was opened')\n"
        "socket.socket.connect = socket.create_connection = socket.getaddrinfo = refuse\n"
    )
    result = python(guard + START + "opened()")
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
