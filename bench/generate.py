"""Tokens per second of a language model: `python -m bench.generate FOLDER [--prompts 16,1024] [--new 64] [--captured]`.

FOLDER has a model of onnxruntime-genai's builder. The same ids run through onnxruntime-genai and through `LanguageModel`.
Printed are the time to the first token and the median of later tokens. Without FOLDER, a small model is written, which shows
the host's cost. For both times, the best of five generations counts, because an idle GPU is slow and the first generation
compiles.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from onnxruntime_ep_wgpu.tools._model import whole

WARM = 4  # warm-up tokens, not counted
RUNS = 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--prompts", default="16,64", help="lengths, separated by commas")
    parser.add_argument(
        "--new", type=whole(WARM + 3), default=48, help=f"tokens that are generated, {WARM + 3} or more"
    )
    parser.add_argument("--captured", action="store_true", help="enableGraphCapture=1, for models built for it")
    parser.add_argument("--layers", type=int, default=16, help="of the small model")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = args.folder or small(Path(scratch), args.layers, args.captured)
        lengths = [int(it) for it in args.prompts.split(",")]
        longest = max(lengths) + args.new + 8
        for name, prepare in (("onnxruntime-genai", through_genai), ("LanguageModel", through_ours)):
            generate = prepare(folder, longest, args.captured)
            for length in lengths:
                ids = np.random.default_rng(0).integers(10, 250, length).astype(np.int32)
                runs = [measured(generate(ids, args.new)) for _ in range(RUNS)]
                first, rate = min(it[0] for it in runs), max(it[1] for it in runs)
                print(f"{name:18} prompt {length:5}: first token {first * 1e3:8.1f} ms, then {rate:8.1f} tokens/s")


def small(scratch: Path, layers: int, captured: bool) -> Path:
    from tests.language.models import Decoder, write

    return write(Decoder("int4-fp32", captured=captured, layers=layers, length=512), scratch / "model")


def measured(steps: Iterator[None]) -> tuple[float, float]:
    """Returns the seconds to the first token, and the tokens per second after it."""
    began, times = time.perf_counter(), []
    for _ in steps:
        now = time.perf_counter()
        times.append(now - began)
        began = now
    return times[0], 1 / statistics.median(times[1 + WARM :])


Generate = Callable[[np.ndarray, int], Iterator[None]]


def through_genai(folder: Path, longest: int, captured: bool) -> Generate:
    import onnxruntime_genai as og

    from onnxruntime_ep_wgpu import get_library_path

    og.register_execution_provider_library("wgpu", get_library_path())
    config = og.Config(str(folder))
    config.clear_providers()
    config.append_provider("webgpu")
    if captured:
        config.set_provider_option("webgpu", "enableGraphCapture", "1")
    model = og.Model(config)

    def generate(ids: np.ndarray, count: int) -> Iterator[None]:
        parameters = og.GeneratorParams(model)
        parameters.set_search_options(max_length=longest, min_length=longest, do_sample=False)
        generator = og.Generator(model, parameters)
        generator.append_tokens(ids)
        for _ in range(count):
            generator.generate_next_token()
            yield

    return generate


def through_ours(folder: Path, longest: int, captured: bool) -> Generate:
    from onnxruntime_ep_wgpu import LanguageModel

    model = LanguageModel(folder, max_length=longest)

    def generate(ids: np.ndarray, count: int) -> Iterator[None]:
        for _ in model.tokens([ids.tolist()], max_new_tokens=count, ends=()):
            yield

    return generate


if __name__ == "__main__":
    main()
