"""One process of random graphs: makes, runs and judges the graphs of some seeds.

    python -m tests.graphs.worker 1234 --target gpu --int64 pair             one graph, in words
    python -m tests.graphs.worker 1234 --shrink /tmp/graphs                  and shrunk
    python -m tests.graphs.worker --json 100-149                             a line of JSON before and after each

A graph that hangs (tests/patience.py) ends the process with the place where it was; so says a crash in native code.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import glob
import json
import os
import sys
import warnings
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from tests import patience

ICD = {
    "lavapipe": ["/usr/share/vulkan/icd.d/lvp_icd*.json"],
    "swiftshader": ["/usr/lib*/chromium*/vk_swiftshader_icd.json", "/opt/google/chrome/vk_swiftshader_icd.json"],
}
"""Where the description of a software adapter's Vulkan driver lies."""


def arguments_of(parser: argparse.ArgumentParser) -> None:
    """What says how graphs are run; the same for one process and for many."""
    parser.add_argument(
        "--target",
        choices=("own", "gpu", "channels", "matrices", "software", "browser"),
        default="own",
        help="the Target: the adapter's own, a GPU's, that with all channels last or with matrices of subgroups, a software"
        " adapter's, a browser's without a GPU",
    )
    parser.add_argument(
        "--int64", choices=("native", "pair"), default="native", help="how 64-bit integers are calculated"
    )
    parser.add_argument(
        "--adapter", default="", help="lavapipe, swiftshader or a Vulkan driver's .json; default: the first"
    )


def choose_adapter(name: str) -> None:
    """Makes the named Vulkan driver the only one; before the first look at adapters. Raises SystemExit when it is missing."""
    if name:
        found = [path for pattern in ICD.get(name, [name]) for path in sorted(glob.glob(pattern))]
        if not found:
            raise SystemExit(f"no Vulkan driver {name!r}: none of {', '.join(ICD.get(name, [name]))}")
        os.environ["VK_DRIVER_FILES"] = os.environ["VK_ICD_FILENAMES"] = found[0]


EVERY_VARIANT = 8
"""One of so many graphs compiles each variant of its kernels with its second sizes, as runs do. The others compile what runs:
half of the variants never do, those for large tensors, and take most of the time."""


def hurry() -> None:
    """What makes graphs fast and is not what they test; before the first look at adapters.

    A seed comes once, so its Programs are not kept on disk. Mesa's compiler leaves out its optimisations."""
    os.environ.setdefault("WGPU_EP_CACHE", "off")
    os.environ.setdefault("GALLIVM_PERF", "nopt")


@contextlib.contextmanager
def compiling(every_variant: bool) -> Iterator[None]:
    """Runs inside compile every variant of their kernels, or those alone that they need."""
    from onnxruntime_ep_wgpu.runtime.pipelines import Pipelines

    usual = Pipelines.expected
    if not every_variant:
        Pipelines.expected = lambda self: {}  # type: ignore[method-assign]
    try:
        yield
    finally:
        Pipelines.expected = usual  # type: ignore[method-assign]


def seeds_of(words: list[str]) -> Iterator[int]:
    for word in words:
        first, _, last = word.partition("-")
        yield from range(int(first), int(last or first) + 1)


@contextlib.contextmanager
def watched() -> Iterator[None]:
    faulthandler.dump_traceback_later(patience.SECONDS, exit=True)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()


def _say_cpu(seed: int) -> None:
    print(json.dumps({"cpu": seed}), flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.graphs.worker", description="Runs random graphs by their seeds."
    )
    parser.add_argument("seeds", nargs="+", metavar="SEED", help="a number or FIRST-LAST")
    arguments_of(parser)
    parser.add_argument("--json", action="store_true", help="a line of JSON per seed")
    parser.add_argument("--shrink", type=Path, metavar="DIR", help="shrinks what fails and writes it here")
    chosen = parser.parse_args()
    faulthandler.enable()
    choose_adapter(chosen.adapter)
    hurry()
    warnings.simplefilter("ignore")

    import onnxruntime as ort

    from tests import targets

    from . import check, shrink
    from .case import listing
    from .generate import generate

    ort.set_default_logger_severity(4)
    failed = False
    with targets.using(targets.Way(chosen.target, chosen.int64)):
        for seed in seeds_of(chosen.seeds):
            with watched(), compiling(seed % EVERY_VARIANT == 0):
                if chosen.json:
                    print(json.dumps({"start": seed}), flush=True)
                case, graph = generate(seed)
                if not chosen.json:
                    print(listing(case), flush=True)
                outcome = check.run(case, graph.by_name, partial(_say_cpu, seed) if chosen.json else lambda: None)
            failed = failed or outcome.status != check.RIGHT
            if chosen.json:
                row = {"seed": seed, **check.summary_of(outcome), "drawn": sorted({node.op for node in case.nodes})}
                print(json.dumps(row), flush=True)
            else:
                print(f"  {outcome.status}: {outcome.detail}", flush=True)
            if chosen.shrink and outcome.status != check.RIGHT:
                small, found = shrink.shrink(case, outcome)
                text = shrink.write(small, found, chosen.shrink / f"{seed}-{chosen.target}-{chosen.int64}")
                if not chosen.json:
                    print(f"\nshrunk:\n{text}", flush=True)
    sys.stdout.flush()
    os._exit(int(failed))  # exit codes of a provider's shutdown are tested elsewhere


if __name__ == "__main__":
    main()
