"""Compare every value that the kernels of a model store with the CPU provider, and name the first kernel that differs.

If the two differ, the value is calculated in float64 from the same operands. The kernel is reported only if float64 shows a
larger error than the CPU provider's, or if float64 is not possible.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ._model import add_input_arguments, add_model_arguments, make_feeds, open_session, whole
from ._output import progress, show_json, show_lines, show_pairs, show_table

if TYPE_CHECKING:
    from ..api.outputs import Output


def _tolerance(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0 on")
    return value


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model_arguments(parser)
    add_input_arguments(parser)
    parser.add_argument("--tolerance", type=_tolerance, metavar="T",
                        help="largest error, as a part of the largest value (1e-3, f16 4e-3); integers must be equal")  # fmt: skip
    parser.add_argument("--rows", type=whole(0), default=20, metavar="N", help="how many rows each table shows (20)")


def main(args: argparse.Namespace) -> int:
    """Returns 1 if a kernel differs by more than the tolerance."""
    from ..api.differences import tolerance_of
    from ..api.verify import KERNELS, OUTPUTS, compared

    with progress("session", 4) as step:
        found = compared(
            lambda: open_session(args, step), lambda session: make_feeds(session, args), step, args.tolerance
        )
    kernels = found.kernels
    bad = found.differing
    data: dict[str, Any] = {
        "model": str(args.model), "device": found.device, "nodes": len(found.nodes), "nodes_on_cpu": len(found.on_cpu),
        "kernels": found.dispatches, "values_stored": found.stored, "values_compared": len(kernels),
        "kernels_differing": len({k.kernel for k in bad}),
        "kernels_cleared_in_f64": len({k.kernel for k in kernels if k.disagrees(args.tolerance) and k not in bad}),
        "outputs_differing": sum(not it.error <= tolerance_of(it.dtype, args.tolerance) for it in found.outputs),
        "first_differing": vars(bad[0]) if bad else None,
    }  # fmt: skip
    on_cpu = [(node.name, node.op_type, node.reason) for node in found.on_cpu]
    if args.json:
        by_order = [vars(k) for k in kernels]
        left_out = [vars(it) for it in found.uncompared]
        outputs = [asdict(it) for it in found.outputs]
        show_json(
            {**data, "on_cpu": on_cpu, "uncompared": left_out, "kernels_by_running_order": by_order, "outputs": outputs}
        )
        return int(bool(bad))
    first = data.pop("first_differing")
    show_pairs(data)
    if first:
        show_pairs({**first, "nodes": ", ".join(first["nodes"])}, "\nfirst kernel that differs")
    show_table(KERNELS, found.kernel_rows()[: args.rows], "\nlargest errors")
    if found.uncompared:
        rest = [[it.kernel, it.value or "(no name)", ", ".join(it.nodes[:3]), it.reason] for it in found.uncompared]
        _show_first(args.rows, ("kernel", "value", "nodes", "reason"), rest, "\nvalues that were not compared")
    if on_cpu:
        _show_first(
            args.rows, ("node", "operator", "reason"), on_cpu, "\nnodes on the CPU, whose results come from there"
        )
    _show_first(args.rows, OUTPUTS, found.output_rows(), "\noutputs, when all of the model runs here")
    _show_contributions(found.outputs, args.rows)
    return int(bool(bad))


def _show_contributions(outputs: Sequence[Output], most: int) -> None:
    for it in outputs:
        if it.contributions:
            moving = [
                [k.kernel, k.value, f"{k.error:.1e}", f"{k.moves:.1e}", ", ".join(k.nodes[:3])]
                for k in it.contributions
            ]
            title = f"\nkernels that move {it.output}, each alone, with all else from the CPU provider"
            _show_first(most, ("kernel", "value", "error", "moves it by", "nodes"), moving, title)
        elif it.to_f64 is not None or it.judge:
            show_lines(f"\nno single kernel moves {it.output}, only several together")


def _show_first(most: int, columns: Sequence[str], rows: Sequence[Sequence[object]], title: str) -> None:
    """Prints the first `most` rows of a table, with the total number in the title."""
    if len(rows) > most:
        title += f", {most} of {len(rows)} (--json has all)"
    show_table(columns, rows[:most], title)
