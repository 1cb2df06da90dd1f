"""What all tests share. `make test` leaves out what is marked `exhaustive`; `make test-rest` runs that."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests import sampling

ROOT = Path(__file__).resolve().parents[1]
# Faults of the package are errors here, in the processes of tests too; for users they leave a node to the CPU.
os.environ["WGPU_EP_STRICT"] = "1"
# What an earlier run has compiled is no part of a test. Those of the cache itself name folders of their own.
os.environ["WGPU_EP_CACHE"] = "off"
# Of what the software driver costs, 85 % is compilation of kernels that run once: it compiles them without optimisation here.
os.environ.setdefault("GALLIVM_PERF", "nopt")


def _build_missing_parts() -> None:
    """Builds in place what csrc/build_*.py declare and this checkout lacks, before a test imports it."""
    package = ROOT / "src" / "onnxruntime_ep_wgpu"
    names = [path.stem.removeprefix("build") for path in (ROOT / "csrc").glob("build_*.py")]
    if all(any(package.glob(f"{name}.*")) for name in names) or "PYTEST_XDIST_WORKER" in os.environ:
        return
    built = subprocess.run(
        [sys.executable, "setup.py", "build_ext", "--inplace"], cwd=ROOT, capture_output=True, text=True
    )
    assert built.returncode == 0, built.stdout + built.stderr


_build_missing_parts()
# As in jobs that a shell runs in the background; children inherit it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "exhaustive: takes minutes and adds little; only in `make test-all`")
    config.addinivalue_line(
        "markers", "costly(most=1): a case takes long to compile; `make test` runs so many, whatever they are"
    )
    config.addinivalue_line(
        "markers", "last: more of the same, which comes when all others have run, as far as there is time"
    )
    config.addinivalue_line("markers", "every_case: `make test` runs every case of the test, not a sample")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--every-case", action="store_true", help="run the whole product of parameters, not only all pairs"
    )


@pytest.hookimpl(tryfirst=True)  # before pytest leaves out what `-m` says
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    beyond = sampling.mark_the_rest(items)
    # A case that was asked for by its id is run.
    if not config.getoption("every_case") and not any("[" in it for it in config.args):
        items[:] = [it for it in items if it not in beyond]
    items.sort(key=lambda it: it.get_closest_marker("last") is not None)


_running: dict[str, float] = {}


def pytest_runtest_logstart(nodeid: str) -> None:
    _running[nodeid] = time.monotonic()


def pytest_runtest_logfinish(nodeid: str) -> None:
    _running.pop(nodeid, None)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What was running when a run was interrupted, as `.ci/run` does with one that takes too long."""
    for nodeid, begun in sorted(_running.items()):
        terminalreporter.write_line(f"was running for {time.monotonic() - begun:.0f} s: {nodeid}")
