"""Chat with a language model in a folder, or answer one prompt."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ..errors import LimitError, ModelError
from ._model import add_device_arguments, given_device, given_options, once
from ._output import show_json, show_note
from ._waits import met

if TYPE_CHECKING:
    from ..api.language.generate import LanguageModel


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="MODEL_DIR", help="model.onnx, its configuration and tokenizer.json")
    add_device_arguments(parser)
    parser.add_argument("--prompt", help="answer this and exit; without a chat template, continue this text")
    parser.add_argument("--system", help="the system message, before the conversation")
    parser.add_argument("--max-length", type=int, metavar="N", help="the longest conversation, in tokens")
    parser.add_argument("--max-new-tokens", type=int, metavar="N", help="the longest answer, in tokens")
    parser.add_argument(
        "--temperature", type=float, default=0.0, metavar="T", help="0 selects the likeliest token (default)"
    )
    parser.add_argument("--top-k", type=int, default=0, metavar="K", help="draw only from the K likeliest tokens")
    parser.add_argument(
        "--top-p",
        type=float,
        default=1.0,
        metavar="P",
        help="draw only from the fewest tokens with this total probability",
    )
    parser.add_argument(
        "--min-p",
        type=float,
        default=0.0,
        metavar="P",
        help="draw only from tokens at least P times as likely as the likeliest",
    )
    parser.add_argument(
        "--repetition-penalty", type=float, default=1.0, metavar="R", help="above 1: makes repetitions less likely"
    )
    parser.add_argument("--seed", type=int, metavar="N", help="equal seeds give equal texts")
    parser.add_argument("--stop", action="append", default=[], metavar="TEXT", help="end an answer before this text")


def main(args: argparse.Namespace) -> int:
    """Returns 130 after Ctrl-C outside an answer. Ctrl-C within an answer ends it, and the conversation goes on."""
    from ..api.language.generate import LanguageModel
    from ..api.sessions import adapter_index

    options, device = given_options(args), given_device(args)
    if device is not None:
        once("--option", [*options.items(), ("adapterIndex", str(adapter_index(device)))])
        options["adapterIndex"] = str(adapter_index(device))
    model = LanguageModel(args.folder, max_length=args.max_length, **options)
    names = ("max_new_tokens", "temperature", "top_k", "top_p", "min_p", "repetition_penalty", "seed", "stop")
    arguments: dict[str, Any] = {name: getattr(args, name) for name in names}
    if args.prompt is not None and model.folder.template is None:
        _answer(model, model.stream(args.prompt, **arguments), args.json)
        return 0
    if model.folder.template is None:
        raise ModelError(
            f"{args.folder} has no chat template (chat_template.jinja, or chat_template in tokenizer_config.json): add one, or"
            " continue a text with --prompt TEXT"
        )
    chat = model.chat(args.system)
    if args.prompt is not None:
        _answer(model, chat.say(args.prompt, **arguments), args.json)
        return 0
    prompt = "> " if sys.stdin.isatty() and sys.stdout.isatty() else ""
    while True:
        try:
            text = input(prompt)
        except EOFError:
            return 0
        if not text.strip():
            continue
        try:
            _answer(model, chat.say(text, **arguments), args.json)
        except LimitError as error:  # the conversation is unchanged
            if not prompt:
                raise
            show_note(f"error: {error}")


def _answer(model: LanguageModel, pieces: Iterator[str], as_json: bool) -> None:
    """Prints an answer as it arrives, then its speed in tokens per second. A piece may consist of several tokens."""
    answer: list[str] = []
    began, before = time.perf_counter(), model.picked
    first, with_first = 0.0, before
    try:
        for piece in pieces:
            if not answer:
                first, with_first = time.perf_counter(), model.picked
            answer.append(piece)
            if not as_json:
                print(piece, end="", flush=True)
    except KeyboardInterrupt:
        met()
    now, count = time.perf_counter(), model.picked - before
    behind = model.picked - with_first if answer else 0
    rate = behind / (now - first) if behind else 0.0
    if as_json:
        show_json({"text": "".join(answer), "tokens": count, "first_s": (first or now) - began, "tokens_per_s": rate})
        return
    print()
    if answer:
        print(f"[{rate:.1f} tokens/s, the first after {first - began:.2f} s]", file=sys.stderr)
