"""The command `wgpu-ep`. In: arguments. Out: text, or JSON with --json, and an exit code.

Every module of `tools/` without a leading underscore is a subcommand. Its docstring is the help text, `add_arguments(parser)`
declares its arguments, and `main(args)` does the work and returns the exit code. Only the module of the called subcommand is
imported. For the others, only the first line of the source is read.

Invariants:

- An error is one line on stderr, or a JSON object with --json, and exit code 2. A traceback appears only with --debug.
- Ctrl-C gives exit code 130, whatever exception a library raises instead. It prints nothing on stderr, except one line if
  the command cannot stop at once (`tools/_waits.py`).
"""

from __future__ import annotations

import argparse
import ast
import importlib
import json
import os
import pkgutil
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Any, NoReturn, cast

from . import tools
from .tabular import printable
from .tools._waits import reporting_waits
from .version import VERSION
from .writing import errors_about

FAILURE = 2
INTERRUPTED = 130


class ArgumentsError(Exception):
    """Invalid arguments, described in one line."""


class Parser(argparse.ArgumentParser):
    """Reports invalid arguments in one line, and suggests the nearest command, option or choice."""

    def error(self, message: str) -> NoReturn:
        raise ArgumentsError(f"{message} (see {self.prog} --help)")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            names = [str(it) for it in action.choices]
            raise argparse.ArgumentError(
                action, f"{value!r} is not one of {', '.join(names)}{_nearest(str(value), names)}"
            )

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        found, unknown = self.parse_known_args(args, namespace)
        if unknown:
            command = getattr(found, "parser", self)
            near = _nearest(unknown[0].partition("=")[0], list(command._option_string_actions))
            command.error(f"unrecognized arguments: {' '.join(unknown)}{near}")
        return found


def _nearest(text: str, names: Sequence[str]) -> str:
    bare = {name.lstrip("-"): name for name in names}  # so that common leading dashes do not count as similarity
    near = get_close_matches(text.lstrip("-"), bare, 1)
    return f"; did you mean {bare[near[0]]}?" if near else ""


def commands() -> Iterator[tuple[str, str]]:
    """Yields (name, summary) of every subcommand, sorted by name, without importing the modules."""
    for found in pkgutil.iter_modules(tools.__path__):
        if not found.name.startswith("_"):
            source = pkgutil.get_data(tools.__name__, f"{found.name}.py") or b""
            yield found.name, (ast.get_docstring(ast.parse(source)) or "").partition("\n")[0]


def parsers() -> Iterator[tuple[str, str, argparse.ArgumentParser]]:
    """Yields (name, summary, parser) of every subcommand, for shell completion. Imports all modules."""
    for name, summary in commands():
        command = next(it for it in make_parser([name])._actions if it.dest == "command")
        yield name, summary, cast(Any, command.choices)[name]


def make_parser(argv: Sequence[str]) -> Parser:
    """Returns the parser for the command line `argv`."""
    parser = Parser(prog="wgpu-ep", description="Run and inspect ONNX models on WebGPU.")
    parser.add_argument("-V", "--version", action="version", version=f"%(prog)s {VERSION}")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    called = next((word for word in argv if not word.startswith("-")), None)
    for name, summary in commands():
        command = subparsers.add_parser(name, help=summary, description=summary)
        command.add_argument("--json", action="store_true", help="print JSON")
        command.add_argument("--debug", action="store_true", help="show the traceback of an error")
        if name == called:
            module = importlib.import_module(f"{tools.__name__}.{name}")
            module.add_arguments(command)
            command.set_defaults(main=module.main, parser=command, parsers=parsers)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one subcommand and returns the exit code: the command's own, 2 for an error, 130 after Ctrl-C."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the shell: `>&-`
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
    with _recording_interrupts() as interrupts:
        try:
            return _main(sys.argv[1:] if argv is None else argv, interrupts)
        except KeyboardInterrupt:
            return INTERRUPTED
        except Exception:
            if interrupts:  # a library replaced KeyboardInterrupt: numpy reports a broken installation
                return INTERRUPTED
            raise


@contextmanager
def _recording_interrupts() -> Iterator[list[int]]:
    """Yields a list that gets one entry for every Ctrl-C during the block."""
    seen: list[int] = []
    in_main_thread = threading.current_thread() is threading.main_thread()
    if not in_main_thread or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield seen
        return

    def interrupt(number: int, frame: Any) -> NoReturn:
        seen.append(number)
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, interrupt)
    try:
        with reporting_waits():
            yield seen
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _main(argv: Sequence[str], interrupts: list[int]) -> int:
    if not argv or argv[0] == "help":  # as in `git help log`: help for the named command, else for all
        argv = [*argv[1:2], "--help"]
    try:
        args = make_parser(argv).parse_args(argv)
    except SystemExit as stop:  # argparse has printed the help or the version
        return stop.code if isinstance(stop.code, int) else FAILURE
    except ArgumentsError as problem:
        return _report_error(str(problem), problem, "--json" in argv)
    try:
        code = int(args.main(args))
        try:
            with errors_about("standard output"):
                sys.stdout.flush()
        except OSError:  # otherwise Python would flush again at exit, and fail again
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise
        return code
    except BrokenPipeError:  # the reader closed the pipe, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as problem:
        if args.debug or interrupts:
            raise
        return _report_error(_one_line(problem), problem, args.json)


def _report_error(line: str, problem: Exception, as_json: bool) -> int:
    report = {"error": {"type": type(problem).__name__, "message": line}}
    print(json.dumps(report) if as_json else f"error: {line}", file=sys.stderr)
    return FAILURE


def _one_line(problem: Exception) -> str:
    text = printable(" ".join(str(problem).split()))
    expected = isinstance(problem, OSError) or type(problem).__module__.startswith("onnxruntime_ep_wgpu")
    if expected and text:
        return text
    return f"{type(problem).__name__}: {text} (--debug shows where)"


if __name__ == "__main__":
    sys.exit(main())
