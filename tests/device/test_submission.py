"""Long lists are submitted in parts, errors belong to the work that caused them, and debuggers see captures."""

from __future__ import annotations

import itertools
import sys
import textwrap
import threading
from pathlib import Path

import numpy as np
import pytest

from onnxruntime_ep_wgpu.device import Device, debugger
from onnxruntime_ep_wgpu.errors import DeviceError
from tests import patience

from .conftest import AddOne, get, put

COUNT = 8


def chain(device: Device, length: int) -> tuple[list, object]:
    """`length` dispatches that each add one, from a buffer of zeros to the buffer that is returned."""
    add = AddOne(device, COUNT)
    buffers = [device.buffer(4 * COUNT) for _ in range(length + 1)]
    return [add.dispatch(x, y) for x, y in itertools.pairwise(buffers)], buffers[-1]


@pytest.mark.parametrize(("per_submission", "submits"), [(0, 1), (1, 10), (3, 4), (5, 2), (9, 2), (10, 1), (4096, 1)])
def test_a_list_is_submitted_in_parts(device: Device, per_submission: int, submits: int) -> None:
    dispatches, last = chain(device, 10)
    before = device.counters
    device.submit(device.record(dispatches), per_submission=per_submission)
    after = device.counters
    assert after["submits"] - before["submits"] == submits
    assert after["dispatches"] - before["dispatches"] == 10
    np.testing.assert_array_equal(get(device, last, np.zeros(COUNT, np.float32)), np.full(COUNT, 10, np.float32))


def test_copies_come_before_and_after_all_parts(device: Device) -> None:
    add = AddOne(device, COUNT)
    x = np.arange(COUNT, dtype=np.float32)
    source, given, made, result = put(device, x), *(device.buffer(4 * COUNT) for _ in range(3))
    device.submit(
        [add.dispatch(given, made), add.dispatch(made, given), add.dispatch(given, made)],
        [(source, 0, given, 0, x.nbytes)],
        [(made, 0, result, 0, x.nbytes)],
        per_submission=1,
    )
    np.testing.assert_array_equal(get(device, result, x), x + 3)


def test_parts_of_two_threads_do_not_mix(device: Device) -> None:
    """Runs that share buffers for intermediate values rely on it."""
    add = AddOne(device, COUNT)
    shared = [device.buffer(4 * COUNT) for _ in range(2)]
    wrong: list[np.ndarray] = []

    def work(seed: int) -> None:
        x = np.full(COUNT, seed, np.float32)
        source, result = put(device, x), device.buffer(4 * COUNT)
        dispatches = [add.dispatch(source, shared[0]), add.dispatch(*shared), add.dispatch(shared[1], result)]
        for _ in range(30):
            device.submit(dispatches, per_submission=1)
            if not np.array_equal(got := get(device, result, x), x + 3):
                wrong.append(got)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in (0, 100)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_an_error_belongs_to_the_work_that_it_is_named_for(device: Device) -> None:
    add = AddOne(device, COUNT)
    buffer = device.buffer(4 * COUNT)
    kernel, group, workgroups = add.dispatch(device.buffer(4 * COUNT), buffer)
    with pytest.raises(DeviceError, match=r"the kernel of node 'add': Validation error: .*[dD]ispatch"):
        device.submit_alone((kernel, group, (70000, 1, 1)), "the kernel of node 'add'")
    device.submit_alone((kernel, group, workgroups), "the kernel of node 'add'")
    np.testing.assert_array_equal(get(device, buffer, np.zeros(COUNT, np.float32)), np.ones(COUNT, np.float32))


# Captures

FAKE = """
#include <stdint.h>
static int calls[3];  /* captures begun, ended, and whether one is open */
static uint32_t start(void *device, void *window) { (void)device; (void)window; calls[0]++; calls[2]++; return 1; }
static uint32_t end(void *device, void *window) { (void)device; (void)window; calls[1]++; calls[2]--; return 1; }
static void *table[32];
int *fake_calls(void) { return calls; }
int RENDERDOC_GetAPI(int version, void **out) {
  (void)version;
  table[19] = (void *)start;
  table[21] = (void *)end;
  *out = table;
  return 1;
}
"""


@pytest.fixture(scope="session")
def renderdoc(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library that answers like RenderDoc and counts captures."""
    if not sys.platform.startswith("linux"):
        pytest.skip("needs a C compiler and Linux names of libraries")
    folder = tmp_path_factory.mktemp("renderdoc")
    (folder / "fake.c").write_text(FAKE)
    library = folder / "librenderdoc.so"
    command = ["cc", "-shared", "-fPIC", "-Wl,-soname,librenderdoc.so", "-o", library, folder / "fake.c"]
    patience.run(command, check=True)
    return library


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="other systems have other debuggers")
def test_without_a_debugger_a_capture_is_an_error_that_names_them(device: Device) -> None:
    assert debugger.attached() is None
    with pytest.raises(DeviceError, match=r"RenderDoc.*PIX.*Xcode"), device.debugger_capture():
        raise AssertionError("there is nothing to capture with")


CAPTURED = """
import ctypes, sys
fake = ctypes.CDLL(sys.argv[1])
fake.fake_calls.restype = ctypes.POINTER(ctypes.c_int)
calls = fake.fake_calls()
from onnxruntime_ep_wgpu.device import adapters, debugger, open_device
device = open_device(adapters()[0])
assert debugger.attached() == "RenderDoc"
with device.debugger_capture():
    assert calls[:3] == [1, 0, 1], calls[:3]
    device.submit(())
assert calls[:3] == [1, 1, 0], calls[:3]
try:
    with device.debugger_capture():
        raise ValueError
except ValueError:
    print(calls[:3])
"""


def test_work_is_wrapped_in_a_capture_of_renderdoc(renderdoc: Path) -> None:
    result = patience.run([sys.executable, "-c", textwrap.dedent(CAPTURED), renderdoc])
    assert (result.returncode, result.stdout) == (0, "[2, 2, 0]\n"), result.stderr
