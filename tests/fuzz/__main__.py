"""Many hostile files: `python -m tests.fuzz --count 100000 [--kind program] [--first 0] [--node]`.

Each is read in this process, and with --node by the web library too. Progress goes to stderr; at the end: how many had which
outcome, and the names of those that nobody meant. The exit status is 1 when there is one. A case that takes longer than SECONDS
ends the process with the place where it was.
"""

from __future__ import annotations

import argparse
import faulthandler
import resource
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from . import hostile, read

SECONDS = 60
MEMORY = 6 << 30  # bytes of addresses; what asks for more is a defect
BATCH = 500


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz", description="Reads files that strangers may have made."
    )
    parser.add_argument("--count", type=int, default=3000, help="how many of all kinds together")
    parser.add_argument("--first", type=int, default=0, metavar="N", help="the first number")
    parser.add_argument("--kind", choices=hostile.KINDS, help="this kind alone")
    parser.add_argument(
        "--node", action="store_true", help="programs and exports in the web library too, as further cases"
    )
    parser.add_argument("--case", metavar="NAME", help="this case alone, such as program:17, with its traceback")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        return one(chosen.case, Path(temporary)) if chosen.case else many(chosen, Path(temporary))


def one(name: str, folder: Path) -> int:
    print(*read.read_in_node([name], folder).values())
    read.read_case(name, folder)
    return 0


def many(chosen: argparse.Namespace, folder: Path) -> int:
    kinds = (chosen.kind,) if chosen.kind else hostile.KINDS
    ways = [
        (kind, way)
        for kind in kinds
        for way in ("python", "node")
        if way == "python" or (chosen.node and kind != "table")
    ]
    each = -(-chosen.count // len(ways))
    outcomes: Counter[tuple[str, str, str]] = Counter()
    defects: list[str] = []
    begin = time.monotonic()
    for kind, way in ways:
        names = [f"{kind}:{number}" for number in range(chosen.first, chosen.first + each)]
        for at in range(0, each, BATCH):
            batch = names[at : at + BATCH]
            for name, outcome in (
                python(batch, folder) if way == "python" else read.read_in_node(batch, folder)
            ).items():
                outcomes[kind, way, outcome.partition(":")[0]] += 1
                if outcome.startswith("defect"):
                    defects.append(f"{way} {name}: {outcome}")
                    print(defects[-1], file=sys.stderr, flush=True)
            done = sum(outcomes.values())
            print(
                f"{done} of {each * len(ways)}, {len(defects)} defects, {done / (time.monotonic() - begin):.0f}/s",
                file=sys.stderr,
                flush=True,
            )
    for (kind, way, outcome), count in sorted(outcomes.items()):
        print(f"{kind} in {way}: {outcome} {count}")
    print("\n".join(defects))
    return 1 if defects else 0


def python(names: list[str], folder: Path) -> dict[str, str]:
    found = {}
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, before[1]))  # not for Node, which reserves more
    for name in names:
        faulthandler.dump_traceback_later(SECONDS, exit=True)
        found[name] = read.read(name, folder)
        faulthandler.cancel_dump_traceback_later()
    resource.setrlimit(resource.RLIMIT_AS, before)
    return found


if __name__ == "__main__":
    sys.exit(main())
