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
    from ..api.reports import COLUMNS, node_rows, report

    with progress("session", 1) as step:
        placed = report(open_session(args, step, allow_cpu_only=True))
    nodes = [node for node in placed.nodes if not (node.on_webgpu and args.cpu)]
    data: dict[str, Any] = {
        "model": str(args.model),
        "device": placed.device,
        "nodes": len(placed.nodes),
        "nodes_on_cpu": len(placed.on_cpu),
        "partitions": placed.partitions,
        "kernels": placed.kernels,
    }
    if placed.values:
        data["values"] = [asdict(it) for it in placed.values] if args.json else ". ".join(map(str, placed.values))
    if args.json:
        show_json({**data, "placements": [{**asdict(node), "on_webgpu": node.on_webgpu} for node in nodes]})
        return 0
    show_pairs(data)
    if nodes:
        show_table(COLUMNS, node_rows(nodes), "\nnodes on the CPU" if args.cpu else "\nnodes")
    else:
        print("\nno node on the CPU" if args.cpu else "\nno nodes")
    return 0
