"""Time of a tree ensemble, beside the CPU provider: `python -m bench.trees [--trees N] [--depth N] [--rows N] [--targets N]`.

Out: medians of whole runs, with inputs and results on the host, by this provider and by the CPU provider. With timestamp
queries, also the GPU time. The results are compared.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper

from tests import provider

from . import gpu_time

ML = "ai.onnx.ml"


def model(trees: int, depth: int, features: int, targets: int) -> onnx.ModelProto:
    """Returns full trees with random features and splits. All leaves of a tree have one target, as in multi-class boosting."""
    rng = np.random.default_rng(0)
    inner, each = 2**depth - 1, 2 ** (depth + 1) - 1
    tree, node = np.repeat(np.arange(trees), each), np.tile(np.arange(each), trees)
    branch = node < inner
    leaves = np.flatnonzero(~branch)
    nodes = {
        "treeids": tree.tolist(),
        "nodeids": node.tolist(),
        "featureids": rng.integers(0, features, tree.size).tolist(),
        "values": rng.uniform(-1, 1, tree.size).astype(np.float32).tolist(),
        "modes": np.where(branch, "BRANCH_LEQ", "LEAF").tolist(),
        "truenodeids": np.where(branch, 2 * node + 1, 0).tolist(),
        "falsenodeids": np.where(branch, 2 * node + 2, 0).tolist(),
    }
    ends = {
        "treeids": tree[leaves].tolist(),
        "nodeids": node[leaves].tolist(),
        "ids": (tree[leaves] % targets).tolist(),
        "weights": rng.uniform(-1, 1, leaves.size).astype(np.float32).tolist(),
    }
    attributes = {f"nodes_{name}": value for name, value in nodes.items()}
    attributes |= {f"target_{name}": value for name, value in ends.items()}
    made = helper.make_node("TreeEnsembleRegressor", ["x"], ["y"], "trees", domain=ML, n_targets=targets, **attributes)
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", features])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["rows", targets])]
    graph = helper.make_graph([made], "trees", inputs, outputs)
    return helper.make_model(
        graph, ir_version=9, opset_imports=[helper.make_opsetid("", 18), helper.make_opsetid(ML, 3)]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trees", type=int, default=1000)
    parser.add_argument("--depth", type=int, default=8)
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--features", type=int, default=32)
    parser.add_argument("--targets", type=int, default=1)
    parser.add_argument("--runs", type=int, default=9)
    args = parser.parse_args()
    feeds = {"x": np.random.default_rng(1).uniform(-1, 1, (args.rows, args.features)).astype(np.float32)}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trees.onnx"
        onnx.save(model(args.trees, args.depth, args.features, args.targets), path)
        results = []
        for kind in ("ours", "cpu"):
            begin = time.perf_counter()
            session, taken = provider.open_session(path, kind), []
            made = time.perf_counter() - begin
            for _ in range(args.runs):
                begin = time.perf_counter()
                found = session.run(None, feeds)
                taken.append(time.perf_counter() - begin)
            results.append(found[0])
            print(f"{kind:5} session {made:8.2f} s, run {statistics.median(taken) * 1e3:9.2f} ms", flush=True)
        np.testing.assert_allclose(*results, rtol=1e-3, atol=1e-3)
        try:
            print(f"GPU   {gpu_time.ours(path, feeds) * 1e3:.3f} ms")
        except gpu_time.NoTimestampsError:
            print("GPU   - (no timestamp queries)")


if __name__ == "__main__":
    main()
