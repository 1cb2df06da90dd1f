"""Show the adapters that models can run on, and the versions in use."""

from __future__ import annotations

import argparse
import importlib.metadata
import platform
from typing import TYPE_CHECKING, Any

from ..errors import WgpuEpError
from ._model import adapter_of, whole
from ._output import show_json, show_pairs, show_table

if TYPE_CHECKING:
    from ..device import Adapter

PACKAGES = ("onnxruntime-ep-wgpu", "onnxruntime", "wgpu", "wgpudawn", "onnx", "onnx-ir", "numpy")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--adapter", type=whole(0), metavar="N", help="show the limits and features of adapter N")


def main(args: argparse.Namespace) -> int:
    """Returns 1 if there is no adapter."""
    from ..device import adapters, adapters_problem
    from ..plugin.factory import SHOWN_LIMITS, library_of

    found = adapters()
    data: dict[str, Any] = {
        "versions": versions(),
        "problem": adapters_problem(),
        "adapters": [
            {
                "index": adapter.index,
                "name": adapter.name,
                "backend": adapter.backend,
                "library": library_of(adapter),
                "library_problem": _library_problem(adapter),
                "type": adapter.type,
                "driver": adapter.driver,
                "vendor_id": adapter.vendor_id,
                "device_id": adapter.device_id,
                "software": adapter.software,
                "features": sorted(adapter.features),
                "limits": dict(adapter.limits),
                "refused_matrix_units": adapter.refused_matrices,
            }
            for adapter in found
        ],
    }
    if args.adapter is not None:
        adapter_of(args.adapter)
    if args.json:
        show_json(data)
    elif args.adapter is not None:
        chosen = data["adapters"][args.adapter]
        limits, features = chosen.pop("limits"), chosen.pop("features")
        show_pairs(chosen)
        show_pairs(limits, "\nlimits")
        show_table(["features"], [[name] for name in features])
    else:
        show_pairs(data["versions"])
        print()
        columns = ("index", "name", "backend", "type", "driver")
        if found:
            show_table(columns, [[adapter[column] for column in columns] for adapter in data["adapters"]])
            for adapter, shown in zip(found, data["adapters"], strict=True):
                limits = {name: shown["limits"][name] for name in SHOWN_LIMITS if name in shown["limits"]}
                used = ", ".join(sorted(adapter.target().features)) or "none"
                wrong = shown["refused_matrix_units"]
                refused = {"rejected matrix units": wrong} if wrong else {}
                problem = {"library problem": shown["library_problem"]} if shown["library_problem"] else {}
                show_pairs(
                    {**limits, "library": shown["library"], **problem, "features that kernels use": used, **refused},
                    f"\n{adapter.index}: {adapter.name}",
                )
            print("\nwgpu-ep info --adapter N shows every limit and feature of an adapter")
        else:
            print(data["problem"])
    return 0 if found else 1


def _library_problem(adapter: Adapter) -> str:
    """Returns why the library that the environment requests cannot use an adapter; "" if it can, or if none is requested."""
    from ..device.webgpu import libraries

    requested = libraries.requested()
    try:
        adapter.through("", "" if requested == libraries.AUTO else requested)
    except WgpuEpError as error:
        return str(error)
    return ""


def versions() -> dict[str, str]:
    """Returns the versions of Python, of the main packages and of wgpu-native."""
    from ..device import library_named

    result = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            result[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            result[name] = "not installed"
    result["wgpu-native"] = library_named("wgpu-native").version
    return result
