"""What Python does in steps of a decoder that onnxruntime-genai drives: `python -m tests.language.steps FOLDER STEPS [KEY=VALUE]`.

Prints JSON: how often each function of interest was called in so many steps, after some that were not counted, and the ids.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

from .worker import PROMPT, generator, ids, model_of, steps

BEFORE = 8


def counted(calls: Counter[str], name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*arguments: Any) -> Any:
        calls[name] += 1
        return function(*arguments)

    call.__dict__.update(function.__dict__)
    return call


def main() -> None:
    folder, count, *options = sys.argv[1:]
    model = model_of(folder, "webgpu", dict(it.split("=", 1) for it in options))
    from onnxruntime_ep_wgpu.plugin.allocator import Allocator
    from onnxruntime_ep_wgpu.plugin.memory.transfer import DataTransfer
    from onnxruntime_ep_wgpu.plugin.node import ComputeInfo

    it = generator(model, PROMPT, max_length=BEFORE + int(count) + 20, min_length=BEFORE + int(count) + 20)
    steps(it, BEFORE)
    calls: Counter[str] = Counter()
    parts = {ComputeInfo: ("compute",), Allocator: ("alloc", "free"), DataTransfer: ("can_copy", "copy_tensors")}
    for part, names in parts.items():
        for name in names:
            setattr(part, name, counted(calls, name, getattr(part, name)))
    steps(it, int(count))
    print(json.dumps({"calls": calls, "ids": ids(it)}))


if __name__ == "__main__":
    main()
