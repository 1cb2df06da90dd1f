"""Check this machine: driver, adapters, versions, and a small run on each adapter; say what to do about what fails."""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import platform
import re
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING

from ..errors import InternalError, WgpuEpError
from ..records import dataclass
from ._output import show_json, show_lines, show_table

if TYPE_CHECKING:
    from ..device import Adapter

OK, WARNING, FAILED = "ok", "warning", "failed"


@dataclass(frozen=True)
class Finding:
    """The result of one check, with a remedy unless it is `ok`."""

    check: str
    result: str
    found: str
    remedy: str = ""


def add_arguments(_parser: argparse.ArgumentParser) -> None:
    pass


def main(args: argparse.Namespace) -> int:
    """Returns 1 if a check failed."""
    found = list(_checks())
    if args.json:
        show_json([asdict(it) for it in found])
    else:
        show_table(("check", "result", "found"), [(it.check, it.result, it.found) for it in found])
        for it in found:
            if it.remedy:
                show_lines(f"\n{it.check}: {it.remedy}")
    return int(any(it.result == FAILED for it in found))


def _checks() -> Iterator[Finding]:
    from ..device import adapters, adapters_problem

    yield Finding("Python", OK, f"{platform.python_version()}, {platform.platform()}")
    yield _onnxruntime()
    yield _cache()
    found = adapters()
    if not found:
        yield Finding("adapters", FAILED, "none", adapters_problem() or "install the driver of the GPU's vendor")
        return
    software = all(it.software for it in found)
    yield Finding(
        "adapters", WARNING if software else OK, ", ".join(it.name for it in found),
        "only software adapters are found: a GPU needs the driver of its vendor" + _hidden() if software else "",
    )  # fmt: skip
    yield _guarded("provider", _registration, "reinstall the package: pip install --force-reinstall . in a checkout")
    for adapter in found:
        name = f"run on {adapter.index}: {adapter.name}"
        yield _guarded(name, lambda adapter=adapter: _run(adapter), f"update the driver, {adapter.driver or 'unknown'}")  # type: ignore[misc]


def _guarded(name: str, check: Callable[[], str], remedy: str) -> Finding:
    """Returns the finding of a check. An error of this package names the remedy itself; `remedy` is for other errors."""
    try:
        return Finding(name, OK, check())
    except Exception as error:
        text = " ".join(str(error).split())
        told = isinstance(error, WgpuEpError) and not isinstance(error, InternalError)
        return Finding(name, FAILED, text[:200] or type(error).__name__, text if told else remedy)


def _onnxruntime() -> Finding:
    """Checks that ONNX Runtime is as new as the package requires."""
    version = importlib.metadata.version("onnxruntime")
    asked = " ".join(importlib.metadata.requires("onnxruntime-ep-wgpu") or ())
    least = re.search(r"\bonnxruntime>=([0-9.]+)", asked)
    if least is not None and _numbers(version) < _numbers(least[1]):
        return Finding("onnxruntime", FAILED, version, f"pip install 'onnxruntime>={least[1]}'")
    return Finding("onnxruntime", OK, version)


def _numbers(version: str) -> list[int]:
    return [int(part) for part in re.findall(r"[0-9]+", version)[:3]]


def _cache() -> Finding:
    """Checks that compiled Programs can be stored."""
    from ..kept.folder import VARIABLE, Folder, folder_path

    path = folder_path()
    if path is None:
        return Finding("program cache", WARNING, f"{VARIABLE}=off", f"unset {VARIABLE}: sessions start faster with it")
    if problem := Folder(path).check():
        return Finding("program cache", WARNING, problem, f"name another folder: {VARIABLE}=DIR")
    return Finding("program cache", OK, str(path))


def _hidden() -> str:
    """Returns a note on environment variables that hide drivers from the Vulkan loader."""
    names = [it for it in ("VK_DRIVER_FILES", "VK_ICD_FILENAMES", "VK_LOADER_DRIVERS_DISABLE") if it in os.environ]
    return f" (the environment has {', '.join(names)}, which hides drivers)" if names else ""


def _registration() -> str:
    from ..api.devices import devices

    return f"devices in ONNX Runtime: {len(devices())}"


def _run(adapter: Adapter) -> str:
    from ..api.smoke import smoke_run

    return f"right, {smoke_run(adapter.index):.2f} s with compilation"
