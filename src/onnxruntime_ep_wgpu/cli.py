"""The command `wgpu-ep`. In: arguments. Out: text, or JSON with --json, and an exit code.

Every module of `tools/` whose name has no underscore in front is a subcommand: its docstring is the help, its
`add_arguments(parser)` declares what it takes and its `main(args)` does the work and gives the exit code. Only the module of
the subcommand that is called is imported; of the others the source's first line is read. Invariants: a problem is one line
on stderr, with --json an object, and exit code 2; a traceback appears only with --debug; Ctrl-C is exit code 130 and nothing
on stderr, whatever a library makes of it, but for a line where it has to wait (`tools/_waits.py`).
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
from .tools._waits import telling_of_waits
from .version import VERSION
from .writing import naming

FAILURE = 2
INTERRUPTED = 130


class ArgumentsError(Exception):
    """What is wrong with the arguments, in a line."""


class Parser(argparse.ArgumentParser):
    """Says what is wrong with the arguments in one line, and the nearest command, option or choice where one is not known."""

    def error(self, message: str) -> NoReturn:
        raise ArgumentsError(f"{message} (see {self.prog} --help)")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            names = [str(it) for it in action.choices]
            raise argparse.ArgumentError(
                action, f"{value!r} is none of {', '.join(names)}{_nearest(str(value), names)}"
            )

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        found, unknown = self.parse_known_args(args, namespace)
        if unknown:
            command = getattr(found, "parser", self)
            near = _nearest(unknown[0].partition("=")[0], list(command._option_string_actions))
            command.error(f"unrecognized arguments: {' '.join(unknown)}{near}")
        return found


def _nearest(text: str, names: Sequence[str]) -> str:
    bare = {name.lstrip("-"): name for name in names}  # dashes make no two options alike
    near = get_close_matches(text.lstrip("-"), bare, 1)
    return f"; did you mean {bare[near[0]]}?" if near else ""


def commands() -> Iterator[tuple[str, str]]:
    """(name, summary) of every subcommand, by name. The modules are not imported."""
    for found in pkgutil.iter_modules(tools.__path__):
        if not found.name.startswith("_"):
            source = pkgutil.get_data(tools.__name__, f"{found.name}.py") or b""
            yield found.name, (ast.get_docstring(ast.parse(source)) or "").partition("\n")[0]


def parsers() -> Iterator[tuple[str, str, argparse.ArgumentParser]]:
    """(name, summary, parser) of every subcommand, for what completes command lines. All modules are imported."""
    for name, summary in commands():
        command = next(it for it in make_parser([name])._actions if it.dest == "command")
        yield name, summary, cast(Any, command.choices)[name]


def make_parser(argv: Sequence[str]) -> Parser:
    """The parser of the command line `argv`."""
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
    """Runs one subcommand and gives the exit code: the command's own, 2 for a problem, 130 when interrupted."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the shell: `>&-`
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
    with _noting_interrupts() as interrupts:
        try:
            return _main(sys.argv[1:] if argv is None else argv, interrupts)
        except KeyboardInterrupt:
            return INTERRUPTED
        except Exception:
            if interrupts:  # a library turned it into an error of its own: numpy says that its installation is broken
                return INTERRUPTED
            raise


@contextmanager
def _noting_interrupts() -> Iterator[list[int]]:
    """The list has an entry for every Ctrl-C while the block runs."""
    seen: list[int] = []
    ours = threading.current_thread() is threading.main_thread()
    if not ours or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield seen
        return

    def interrupt(number: int, frame: Any) -> NoReturn:
        seen.append(number)
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, interrupt)
    try:
        with telling_of_waits():
            yield seen
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _main(argv: Sequence[str], interrupts: list[int]) -> int:
    if not argv or argv[0] == "help":  # as `git help log`: of the command that follows, else of all
        argv = [*argv[1:2], "--help"]
    try:
        args = make_parser(argv).parse_args(argv)
    except SystemExit as stop:  # argparse has printed its help or the version
        return stop.code if isinstance(stop.code, int) else FAILURE
    except ArgumentsError as problem:
        return _failed(str(problem), problem, "--json" in argv)
    try:
        code = int(args.main(args))
        try:
            with naming("standard output"):
                sys.stdout.flush()
        except OSError:  # what is left would be tried once more at the end
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise
        return code
    except BrokenPipeError:  # the reader, `head` for one, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as problem:
        if args.debug or interrupts:
            raise
        return _failed(_one_line(problem), problem, args.json)


def _failed(line: str, problem: Exception, as_json: bool) -> int:
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
