"""GPU time of operators that sort, TopK of all elements of rows and scattered updates: `python -m bench.sorting`.

Out: per size, the best GPU time from timestamp queries, and the median time of whole runs by this provider and by the CPU
provider. Every result is checked against the CPU provider's. Without timestamp queries, the GPU time is "-".
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
from onnx import helper

from tests import provider
from tests.support import make_model

from . import gpu_time

Case = tuple[str, onnx.ModelProto, dict[str, np.ndarray]]
F, I = np.float32, np.int64  # noqa: E741


def sorts(rng: np.random.Generator, most: int) -> Iterator[Case]:
    """Yields rows around the longest length for counting, and longer ones."""
    for rows, columns in ((1000, 100), (1000, 512), (1000, 513), (100, 4096), (1, 32_000), (1, 1 << 20), (1, 1 << 22)):
        if rows * columns <= most:
            node = helper.make_node("TopK", ["x", "k"], ["values", "places"])
            x = rng.random((rows, columns), F)
            yield (
                f"TopK {rows} x {columns}",
                make_model([node], {"x": (F, ["b", "n"]), "k": (I, [1])}),
                {"x": x, "k": np.array([columns])},
            )


def scatters(rng: np.random.Generator, most: int) -> Iterator[Case]:
    """Yields sums of vectors for the nodes of a graph, in the two forms of exporters."""
    for nodes, updates in (
        (1000, 64),
        (1000, 65),
        (1000, 1000),
        (100_000, 10_000),
        (100_000, 1_000_000),
        (1_000_000, 3_000_000),
    ):
        for op in ("ScatterElements", "ScatterND"):
            if max(nodes, updates) * 16 > most:
                continue
            elements = op == "ScatterElements"
            graph = [helper.make_node("Unsqueeze", ["to", "one"], ["k"]), helper.make_node("Shape", ["u"], ["s"]),
                     helper.make_node("Expand", ["k", "s"], ["i"])]  # fmt: skip
            attributes = {"reduction": "add"} | ({"axis": 0} if elements else {})
            last = helper.make_node(op, ["x", "i" if elements else "k", "u"], ["y"], **attributes)
            graph = [*(graph if elements else graph[:1]), last]
            inputs = {"x": (F, ["n", 16]), "to": (I, ["m"]), "u": (F, ["m", 16])}
            given = {
                "x": rng.random((nodes, 16), F),
                "to": rng.integers(0, nodes, updates),
                "u": rng.random((updates, 16), F),
            }
            yield f"{op} {nodes} x 16, {updates} updates", make_model(graph, inputs, {"one": np.array([1])}), given


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--most", type=int, default=1 << 26, help="elements of a tensor")
    parser.add_argument("--runs", type=int, default=5)
    args = parser.parse_args()
    rng = np.random.default_rng(0)
    print(f"{'':45} {'GPU ms':>9} {'run ms':>9} {'CPU ms':>9}")
    for name, model, feeds in (*sorts(rng, args.most), *scatters(rng, args.most)):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.onnx"
            onnx.save(model, path)
            results, shown = [], []
            for kind in ("ours", "cpu"):
                session, taken = provider.open_session(path, kind), []
                for _ in range(args.runs):
                    begin = time.perf_counter()
                    found = session.run(None, feeds)
                    taken.append(time.perf_counter() - begin)
                results.append(found)
                shown.append(f"{statistics.median(taken) * 1e3:9.2f}")
            for ours, theirs in zip(*results, strict=True):
                np.testing.assert_allclose(ours, theirs, rtol=1e-5)
            try:
                on_gpu = f"{gpu_time.ours(path, feeds) * 1e3:9.3f}"
            except gpu_time.NoTimestampsError:
                on_gpu = f"{'-':>9}"
        print(f"{name:45} {on_gpu} {' '.join(shown)}", flush=True)


if __name__ == "__main__":
    main()
