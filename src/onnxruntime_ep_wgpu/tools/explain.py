"""Show where each node of a model runs, which kernel it is part of, and why a node is on the CPU."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any

from ._model import add_model_arguments, open_session
from ._output import progress, show_json, show_pairs, show_table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model_arguments(parser)
    parser.add_argument("--cpu", action="store_true", help="only the nodes on the CPU")


def main(args: argparse.Namespace) -> int:
    from ..sessions import report

    with progress("session", 1):
        placed = report(open_session(args))
    nodes = [node for node in placed.nodes if node.partition is None or not args.cpu]
    kernels = {(node.within, node.partition, kernel) for node in placed.nodes for kernel in node.kernels}
    data: dict[str, Any] = {
        "model": str(args.model),
        "device": placed.device,
        "nodes": len(placed.nodes),
        "nodes_on_cpu": len(placed.on_cpu),
        "partitions": placed.partitions,
        "kernels": len(kernels),
    }
    if args.json:
        show_json({**data, "placements": [asdict(node) for node in nodes]})
        return 0
    show_pairs(data)
    rows = []
    for node in nodes:
        kernel = ", ".join(node.kernels) or (
            "no kernel: a view, or known before the run" if node.partition is not None else ""
        )
        where = f"{node.within}/" if node.within else ""
        place = node.provider if node.partition is None else f"WebGPU {node.partition}"
        rows.append([where + node.name, node.op_type, place, node.reason or kernel])
    show_table(("node", "operator", "runs on", "kernel, or reason"), rows, "\nnodes")
    return 0
