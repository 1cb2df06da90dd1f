"""Host costs by graph size: `python -m bench.depth [--export NAME ...] [--nodes 5000] [--chart depth.svg]`.

In: graphs in the form that torch exports (`tests/zoo/exports.py`), on the first adapter. Out: a table, and curves with
`--chart`, of milliseconds of this process's CPU time against depth, batch and sequence. The costs are:

- compiling the graph
- planning for a second shape, which needs no new pipelines
- submitting a run of small tensors

Values are medians of three. A software adapter calculates in this process too, so its work counts. The costs grow linearly with
depth; compilation depends on nothing else.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from bench.show import note
from onnxruntime_ep_wgpu.compiler.compile import compile_graph
from onnxruntime_ep_wgpu.device import adapters, open_device
from onnxruntime_ep_wgpu.program.dtypes import DType
from onnxruntime_ep_wgpu.runtime.inputs import DeviceTensor
from onnxruntime_ep_wgpu.tools._output import show_table
from tests.support import Runner
from tests.zoo.exports import EXPORTS, inputs

REPEATS = 3
SIZES = {"t5_encoder": (2, 8), "t5_decoder": (2, 1, 7, 8), "swin": (1, 28, 56), "detector": (1, 64, 96)}
SHALLOW = 4  # layers, while another size varies


@dataclass(frozen=True)
class Row:
    """One measurement: the varied size, its value, and the costs in milliseconds."""

    export: str
    varied: str
    value: int
    nodes: int
    dispatches: int
    compile: float
    plan: float
    run: float


def _milliseconds(work: Callable[[], Any], prepare: Callable[[], Any] = lambda: None) -> float:
    seconds = []
    for _ in range(REPEATS):
        prepare()
        start = time.process_time()
        work()
        seconds.append(time.process_time() - start)
    return statistics.median(seconds) * 1e3


def _compiled(model: Any, target: Any) -> Any:
    module = ir.from_proto(model)
    return compile_graph(module.graph, module.opset_imports, target, model.graph.name)


def measure(export: str, layers: int, sizes: Sequence[int], varied: str, value: int) -> Row:
    device = open_device(adapters()[0])
    model = EXPORTS[export](layers)
    compiling = _milliseconds(lambda: _compiled(model, device.target))
    program = _compiled(model, device.target)
    run = Runner(program, on=device)
    names = [it.name for it in model.graph.input]
    other = (sizes[0] + 1, *sizes[1:])
    for shape in (other, sizes):
        feeds = inputs(export, layers, *shape)
        arrays: list[np.ndarray] = [feeds[name] for name in names]
        run(*arrays)
    shaped = [DeviceTensor(DType.of_numpy(array.dtype), array.shape, None) for array in arrays]
    planning = _milliseconds(lambda: run.executable.plan(shaped), run.executable.plans.clear)
    running = _milliseconds(lambda: run(*arrays))
    return Row(export, varied, value, len(model.graph.node), len(program.dispatches), compiling, planning, running)


def rows(exports: Sequence[str], nodes: int) -> Iterator[Row]:
    """Doubles the depth until a graph has `nodes`, then batch and sequence, or height, at a small depth."""
    for export in exports:
        sizes, layers = SIZES[export], SHALLOW
        step = len(EXPORTS[export](2 * layers).graph.node) - len(EXPORTS[export](layers).graph.node)
        most = max(layers, nodes * layers // step)
        for depth in dict.fromkeys([*(layers << k for k in range(12) if layers << k < most), most]):
            yield measure(export, depth, sizes, "layers", depth)
        for axis, what in ((0, "batch"), (1, "sequence" if export.startswith("t5") else "height")):
            for k in range(4):
                varied = tuple(size << k if at == axis else size for at, size in enumerate(sizes))
                yield measure(export, layers, varied, what, varied[axis])


def chart(found: Sequence[Row], path: Path) -> None:
    """Plots the three costs against the varied size, with a row of panels for each export."""
    try:
        import matplotlib
    except ImportError:
        note("no chart: pip install matplotlib, or the extra `bench` of this package")
        return
    matplotlib.use("Agg")
    from matplotlib import pyplot

    exports = list(dict.fromkeys(row.export for row in found))
    figure, panels = pyplot.subplots(len(exports), 3, figsize=(12, 3 * len(exports)), squeeze=False)
    for line, export in zip(panels, exports, strict=True):
        mine = [row for row in found if row.export == export]
        for panel, varied in zip(line, dict.fromkeys(row.varied for row in mine), strict=True):
            some = [row for row in mine if row.varied == varied]
            along = [row.nodes if varied == "layers" else row.value for row in some]
            for cost in ("compile", "plan", "run"):
                panel.plot(along, [getattr(row, cost) for row in some], marker="o", label=cost)
            panel.set(title=export, xlabel="nodes" if varied == "layers" else varied, ylabel="ms of CPU")
            panel.legend()
    figure.tight_layout()
    figure.savefig(path)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.depth", description="What depth, batch and sequence cost.")
    parser.add_argument("--export", nargs="+", choices=sorted(EXPORTS), default=list(EXPORTS), help="default: all")
    parser.add_argument("--nodes", type=int, default=5000, help="of the deepest graph; default: 5000")
    parser.add_argument("--chart", type=Path, help="curves, a .png or .svg (needs matplotlib)")
    given = parser.parse_args(arguments)
    found = list(rows(given.export, given.nodes))
    show_table(
        ["export", "varied", "value", "nodes", "dispatches", "compile ms", "plan ms", "run ms"],
        [
            [it.export, it.varied, str(it.value), str(it.nodes), str(it.dispatches)]
            + [f"{ms:.1f}" for ms in (it.compile, it.plan, it.run)]
            for it in found
        ],
    )
    if given.chart:
        chart(found, given.chart)


if __name__ == "__main__":
    main()
