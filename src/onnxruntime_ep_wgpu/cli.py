"""The command `wgpu-ep`. In: arguments. Out: text, or JSON with --json, and an exit code.

Every module of `tools/` whose name has no underscore in front is a subcommand: its docstring is the help, its
`add_arguments(parser)` declares what it takes and its `main(args)` does the work and gives the exit code. Invariant: a
problem is one line on stderr and exit code 2; a traceback appears only with --debug.
"""

from __future__ import annotations

import argparse
import importlib
import os
import pkgutil
import sys
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import NoReturn

from . import tools
from .version import VERSION

FAILURE = 2


class Parser(argparse.ArgumentParser):
    """Says what is wrong with the arguments in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(FAILURE, f"error: {message} (see {self.prog} --help)\n")


def commands() -> Iterator[tuple[str, ModuleType]]:
    """(name, module) of every subcommand, by name."""
    for found in pkgutil.iter_modules(tools.__path__):
        if not found.name.startswith("_"):
            yield found.name, importlib.import_module(f"{tools.__name__}.{found.name}")


def make_parser() -> argparse.ArgumentParser:
    """The parser of the whole command line."""
    parser = Parser(prog="wgpu-ep", description="Run and inspect ONNX models on WebGPU.")
    parser.add_argument("--version", action="version", version=f"%(prog)s {VERSION}")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, module in commands():
        summary = (module.__doc__ or "").strip().splitlines()[0]
        command = subparsers.add_parser(name.replace("_", "-"), help=summary, description=summary)
        command.add_argument("--json", action="store_true", help="print JSON")
        command.add_argument("--debug", action="store_true", help="show the traceback of an error")
        module.add_arguments(command)
        command.set_defaults(main=module.main)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one subcommand and gives the exit code: the command's own, 2 for a problem, 130 when interrupted."""
    try:
        args = make_parser().parse_args(argv)
    except SystemExit as stop:  # argparse has printed its line or its help
        return stop.code if isinstance(stop.code, int) else FAILURE
    try:
        return int(args.main(args))
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader, `head` for one, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as problem:
        if args.debug:
            raise
        print(f"error: {_one_line(problem)}", file=sys.stderr)
        return FAILURE


def _one_line(problem: Exception) -> str:
    text = " ".join(str(problem).split())
    expected = isinstance(problem, OSError) or type(problem).__module__.startswith("onnxruntime_ep_wgpu")
    if expected and text:
        return text
    return f"{type(problem).__name__}: {text} (--debug shows where)"
