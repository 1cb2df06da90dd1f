"""Show where each node of a model runs, which kernel it is part of, and why a node is on the CPU."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path

from ._model import add_model_arguments, check_file, open_session
from ._output import progress, show_json, show_pairs, show_table
from ._places import check_files


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model_arguments(parser)
    parser.add_argument("--cpu", action="store_true", help="only the nodes on the CPU")
    parser.add_argument("--html", type=Path, metavar="FILE",
                        help="draw the kernels and the tensors between them, as one self-contained page")  # fmt: skip


def main(args: argparse.Namespace) -> int:
    from ..api.explaining import explained
    from ..api.reports import COLUMNS, node_rows

    if args.html:
        check_file(args.model)
        check_files("--html", args.html)
    with progress("session", 1) as step:
        found = explained(lambda: open_session(args, step, allow_cpu_only=True), str(args.model))
    placed = found.report
    nodes = [node for node in placed.nodes if not (node.on_webgpu and args.cpu)]
    data = found.facts()
    if placed.values:
        data["values"] = [asdict(it) for it in placed.values] if args.json else ". ".join(map(str, placed.values))
    if args.html:
        found.save(args.html)
        data["page"] = str(args.html)
    if args.json:
        show_json({**data, "placements": [{**asdict(node), "on_webgpu": node.on_webgpu} for node in nodes]})
        return 0
    show_pairs(data)
    if nodes:
        show_table(COLUMNS, node_rows(nodes), "\nnodes on the CPU" if args.cpu else "\nnodes")
    else:
        print("\nno node on the CPU" if args.cpu else "\nno nodes")
    return 0
