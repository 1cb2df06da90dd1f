"""The time of a token and its parts: `python -m bench.decode [FOLDER] [--prompts 16,1024,4096] [--kind int4] [--layers 16]`.

FOLDER has a decoder for `LanguageModel`. Without it, a Llama of 1.1 billion random parameters is written (`--layers` of hidden
2048). For each prompt, it prints the milliseconds per token and the host's part of them. Then follow the dispatches of the
prompt and of a token, grouped by purpose over all layers, with the bytes that they read and write. The rest of the time is
launches, waiting and the readback. GPU times are timestamps around each dispatch, in a separate pass.
"""

from __future__ import annotations

import argparse
import re
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from onnxruntime_ep_wgpu.tools._model import whole

WARM = 8  # warm-up tokens, not counted


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--prompts", default="16,1024,4096", help="lengths, separated by commas")
    parser.add_argument(
        "--new", type=whole(WARM + 3), default=48, help=f"tokens that are generated, {WARM + 3} or more"
    )
    parser.add_argument("--kind", default="int4", help="of the model that is written: int4, int4-fp32, fp16 or fp32")
    parser.add_argument("--layers", type=int, default=16, help="of the model that is written")
    args = parser.parse_args()
    from onnxruntime_ep_wgpu import LanguageModel

    lengths = [int(it) for it in args.prompts.split(",")]
    longest = max(lengths) + args.new + 8
    with tempfile.TemporaryDirectory() as scratch:
        folder = args.folder or llama(Path(scratch), args.kind, args.layers, longest)
        began = time.perf_counter()
        model = LanguageModel(folder, max_length=longest)
        print(f"loaded in {time.perf_counter() - began:.2f} s")
        for length in lengths:
            ids = np.random.default_rng(0).integers(10, 250, length).tolist()
            list(model.tokens([ids], max_new_tokens=WARM, ends=()))
            shown(length, *measured(model.tokens([ids], max_new_tokens=args.new, ends=())))
            for part, rows in (
                ("the prompt and the first token", listened(model.tokens([ids], max_new_tokens=1, ends=()), 0)),
                ("a token", listened(model.tokens([ids], max_new_tokens=WARM + 4, ends=()), WARM)),
            ):
                print(f"  {part}:")
                for row in by_place(*rows):
                    print("  " + "{:9.1f} us {:5} x {:7.1f} us {:8.1f} GB/s  {}".format(*row))


def llama(scratch: Path, kind: str, layers: int, length: int) -> Path:
    import onnx

    from tests.language.models import Decoder, graph_of, write_beside

    decoder = Decoder(
        kind, layers=layers, heads=32, groups=8, size=64, inner=8192, vocabulary=32768, length=max(8192, length)
    )
    data = {"save_as_external_data": True, "location": "model.data"}
    onnx.save(graph_of(decoder), str(scratch / "model.onnx"), **data)
    return write_beside(decoder, scratch)


def measured(steps: Iterator[Any]) -> tuple[float, float, float]:
    """Returns the seconds to the first token, the seconds per later token, and the CPU time of this thread per later token."""
    whole, busy = [time.perf_counter()], [time.thread_time()]
    for _ in steps:
        whole.append(time.perf_counter())
        busy.append(time.thread_time())
    walls, hosts = np.diff(whole), np.diff(busy)
    return float(walls[0]), statistics.median(walls[1 + WARM :]), statistics.median(hosts[1 + WARM :])


def shown(length: int, first: float, token: float, host: float) -> None:
    print(
        f"prompt {length:5}: first token {first * 1e3:8.2f} ms, then {1 / token:7.1f} tokens/s:"
        f" {token * 1e3:7.3f} ms each, {host * 1e3:7.3f} of them CPU time of the calling thread"
    )


def listened(steps: Iterator[Any], skipped: int) -> tuple[int, list[Any]]:
    """Returns the number of tokens after the first `skipped` ones, and their dispatches."""
    from onnxruntime_ep_wgpu.trace import Recorder

    for _ in range(skipped):
        next(steps)
    recorder = Recorder()
    with recorder.listening():
        count = sum(1 for _ in steps)
    return count, [it for it in recorder.finish() if it.kind == "dispatch"]


def by_place(count: int, dispatches: list[Any]) -> list[tuple[float, int, float, float, str]]:
    """Returns per token and kind of dispatch: microseconds, count, microseconds each, GB/s, name. The sum comes first."""
    times: dict[str, list[float]] = defaultdict(list)
    moved: dict[str, float] = defaultdict(float)
    for it in dispatches:
        place = f"{it.args.get('kernel', '')} {re.sub('[0-9]+', '#', it.name)[:90]}"
        times[place].append((it.end - it.begin) / 1e3)
        moved[place] += float(it.args.get("bytes", 0))
    rows = [
        (
            sum(own) / count,
            round(len(own) / count),
            sum(own) / len(own),
            moved[place] / max(sum(own), 1e-9) / 1e3,
            place,
        )
        for place, own in times.items()
    ]
    rows.sort(reverse=True)
    total, number = sum(it[0] for it in rows), sum(it[1] for it in rows)
    everything = sum(moved.values()) / count / max(total, 1e-9) / 1e3
    return [(total, number, total / max(1, number), everything, "all, on the GPU"), *rows]


if __name__ == "__main__":
    main()
