"""Many random graphs: `python -m tests.graphs --count 50000 --jobs 2 [--target gpu] [--int64 pair] [--adapter swiftshader]`.

Progress goes to stderr. At the end: how many graphs were right, operators run where, and failing seeds by kind, each with a
command that repeats it. The exit status is 1 when one failed.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter, defaultdict

from . import batches
from .batches import Row
from .worker import arguments_of

SHOWN = 12  # seeds of a kind


class Tally:
    """Counts rows as they come and shows how far it is."""

    def __init__(self, count: int) -> None:
        self.count, self.done, self.begin, self.shown = count, 0, time.monotonic(), 0.0
        self.failures: dict[tuple[str, str], list[Row]] = defaultdict(list)
        self.on_gpu: Counter[str] = Counter()
        self.on_cpu: Counter[str] = Counter()
        self.cpu_checked = 0

    def add(self, row: Row) -> None:
        self.done += 1
        self.on_gpu.update(row["on_gpu"])
        self.on_cpu.update(row["on_cpu"])
        self.cpu_checked += bool(row.get("cpu_checked"))
        if row["status"] != "right":
            self.failures[row["status"], row["kind"]].append(row)
            print(f"seed {row['seed']}: {row['status']}: {row['detail'][:300]}", file=sys.stderr, flush=True)
        now = time.monotonic()
        if now - self.shown > 10:
            self.shown = now
            rate = self.done / (now - self.begin)
            print(
                f"{self.done} of {self.count}, {self.failed} failed, {rate:.1f} graphs/s", file=sys.stderr, flush=True
            )

    @property
    def failed(self) -> int:
        return sum(map(len, self.failures.values()))

    def summary(self, flags: list[str]) -> str:
        seconds = time.monotonic() - self.begin
        lines = [
            f"{self.done} graphs in {seconds:.0f} s, {self.done / seconds:.1f} per second; {self.done - self.failed} right,"
            f" {self.cpu_checked} also compared with the CPU provider",
            f"{sum(self.on_gpu.values())} nodes of {len(self.on_gpu)} operators on WebGPU, {sum(self.on_cpu.values())} on the CPU",
        ]
        for (status, kind), rows in sorted(self.failures.items(), key=lambda item: -len(item[1])):
            seeds = sorted(row["seed"] for row in rows)
            more = f" and {len(seeds) - SHOWN} more" if len(seeds) > SHOWN else ""
            lines.append(f"{len(seeds)} {status}: {kind}")
            lines.append(f"    {' '.join(map(str, seeds[:SHOWN]))}{more}")
            lines.append(f"    {rows[0]['detail'][: None if status in ('crash', 'hang') else 400]}")
            lines.append(f"    python -m tests.graphs.worker {seeds[0]} {' '.join(flags)}".rstrip())
        return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.graphs", description="Runs random graphs and compares results."
    )
    parser.add_argument("--count", type=int, default=1500, help="how many graphs")
    parser.add_argument("--first", type=int, default=0, metavar="SEED", help="the first seed")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="no graph begins later than this")
    arguments_of(parser)
    chosen = parser.parse_args()
    flags = [
        f
        for name in ("target", "int64", "adapter")
        if getattr(chosen, name)
        for f in (f"--{name}", getattr(chosen, name))
    ]
    tally = Tally(chosen.count)
    batches.run(range(chosen.first, chosen.first + chosen.count), flags, chosen.jobs, chosen.seconds, tally.add)
    print(tally.summary(flags))
    return 1 if tally.failed or not tally.done else 0


if __name__ == "__main__":
    sys.exit(main())
