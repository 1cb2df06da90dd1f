"""A process that generates with onnxruntime-genai: `python -m tests.language.worker FOLDER cpu|webgpu [KEY=VALUE...]`.

Prints JSON: the ids of every scenario. Its exit is part of what is tested.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import onnxruntime_genai as og

PROMPT, MORE, OTHER = [5, 77, 130, 9, 200], [33, 12, 250], [8, 61]


def model_of(folder: str, provider: str, options: dict[str, str]) -> Any:
    config = og.Config(folder)
    config.clear_providers()
    if provider != "cpu":
        from onnxruntime_ep_wgpu import get_library_path

        og.register_execution_provider_library("wgpu", get_library_path())
        config.append_provider(provider)
        for key, value in options.items():
            config.set_provider_option(provider, key, value)
    return og.Model(config)


def generator(model: Any, prompt: list[int], **search: Any) -> Any:
    parameters = og.GeneratorParams(model)
    parameters.set_search_options(**{"do_sample": False, "max_length": 64, "min_length": 64} | search)
    made = og.Generator(model, parameters)
    made.append_tokens(np.array(prompt, np.int32))
    return made


def steps(it: Any, count: int) -> None:
    for _ in range(count):
        it.generate_next_token()


def ids(it: Any, index: int = 0) -> list[int]:
    return [int(n) for n in it.get_sequence(index)]


def greedy(model: Any) -> list[int]:
    it = generator(model, PROMPT)
    steps(it, 40)
    return ids(it)


def continued(model: Any) -> list[int]:
    """A second turn on the cache of the first, as chats have it. The last token is in no cache yet, and onnxruntime-genai
    leaves out its row, which may then hold anything: it is taken back and appended."""
    it = generator(model, PROMPT)
    steps(it, 10)
    *before, last = ids(it)
    it.rewind_to(len(before))
    it.append_tokens(np.array([last, *MORE], np.int32))
    steps(it, 10)
    return ids(it)


def several(model: Any) -> list[list[int]]:
    """Two generators that take turns."""
    both = [generator(model, PROMPT), generator(model, OTHER)]
    for _ in range(10):
        for it in both:
            it.generate_next_token()
    return [ids(it) for it in both]


def rewound(model: Any) -> list[int]:
    it = generator(model, PROMPT)
    steps(it, 20)
    it.rewind_to(12)
    steps(it, 20)
    return ids(it)


def beams(model: Any) -> list[list[int]]:
    it = generator(model, PROMPT, num_beams=3, num_return_sequences=2, max_length=20, min_length=0)
    while not it.is_done():
        it.generate_next_token()
    return [ids(it, k) for k in range(2)]


SCENARIOS: tuple[Callable[[Any], Any], ...] = (greedy, continued, several, rewound, beams)


def main() -> None:
    folder, provider, names, *options = sys.argv[1:]
    model = model_of(folder, provider, dict(it.split("=", 1) for it in options))
    print(json.dumps({s.__name__: s(model) for s in SCENARIOS if s.__name__ in names.split(",")}))


if __name__ == "__main__":
    main()
