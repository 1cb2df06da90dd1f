"""What people rely on at the command line: help, one-line errors, JSON, plain text in pipes."""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import threading

import pytest

from onnxruntime_ep_wgpu import cli
from onnxruntime_ep_wgpu.errors import OptionError
from onnxruntime_ep_wgpu.options import OPTIONS
from onnxruntime_ep_wgpu.tools import _output, _waits, info
from onnxruntime_ep_wgpu.version import VERSION
from tests import patience


def test_every_tool_has_a_summary_and_appears_in_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--help"]) == 0
    text = capsys.readouterr().out
    for name, summary in cli.commands():
        assert name in text
        assert summary and summary[:20] in text


def test_wrong_arguments_are_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["info", "--nonsense"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1 and "--nonsense" in captured.err


@pytest.mark.parametrize("argv", [[], ["help"], ["--help"]])
def test_help_is_what_a_command_alone_gives(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(argv) == 0
    captured = capsys.readouterr()
    assert captured.err == "" and "usage: wgpu-ep" in captured.out and "explain" in captured.out


def test_help_of_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["help", "info"]) == 0
    assert "usage: wgpu-ep info" in capsys.readouterr().out
    assert cli.main(["help", "inof"]) == 2
    assert "did you mean info?" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["-V", "--version"])
def test_the_version(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([option]) == 0
    assert capsys.readouterr().out == f"wgpu-ep {VERSION}\n"


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (OptionError("option 'x'\n  is unknown"), "error: option 'x' is unknown\n"),
        (FileNotFoundError(2, "No such file or directory", "m.onnx"), "'m.onnx'\n"),
        (KeyError("lost"), "error: KeyError: 'lost' (--debug shows where)\n"),
    ],
)
def test_problems_are_one_line_and_exit_code_two(
    error: Exception, line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(args: argparse.Namespace) -> int:
        raise error

    monkeypatch.setattr(info, "main", fail)
    assert cli.main(["info"]) == 2
    captured = capsys.readouterr()
    assert captured.err.endswith(line) and captured.err.count("\n") == 1
    with pytest.raises(type(error)):
        cli.main(["info", "--debug"])


def test_info_gives_adapters_and_versions_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["info", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["problem"] is None
    assert data["adapters"][0]["limits"]["max-buffer-size"] > 0
    assert {"python", "onnxruntime", "wgpu-native"} <= data["versions"].keys()


def test_info_is_plain_text_in_a_pipe() -> None:
    result = patience.run(
        [sys.executable, "-m", "onnxruntime_ep_wgpu", "info"],
        check=True,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": ":".join(sys.path)},
    )
    assert result.stderr == ""
    assert "wgpu-native" in result.stdout and "backend" in result.stdout
    assert "\x1b" not in result.stdout


def test_info_shows_one_adapter_and_refuses_one_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["info", "--adapter", "0"]) == 0
    assert "max-storage-buffer-binding-size" in capsys.readouterr().out
    assert cli.main(["info", "--adapter", "99"]) == 2
    assert "no such adapter; there are: 0" in capsys.readouterr().err


def test_without_an_adapter_info_says_why(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("onnxruntime_ep_wgpu.device.adapters", tuple)
    monkeypatch.setattr("onnxruntime_ep_wgpu.device.adapters_problem", lambda: "install a driver")
    assert cli.main(["info"]) == 1
    assert "install a driver" in capsys.readouterr().out


def test_a_reader_that_stops_early_is_no_error() -> None:
    command = f"{sys.executable} -m onnxruntime_ep_wgpu info --json | head -n 1"
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": ":".join(sys.path)}
    result = patience.run(command, shell=True, check=True, env=environment)
    assert (result.stdout, result.stderr) == ("{\n", "")


def test_a_terminal_gets_a_table_with_the_same_content(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    _output.show_table(["name", "ms"], [["MatMul [0]", 1.5], ["Add", 0.25]], "kernels")
    text = capsys.readouterr().out
    for part in ("kernels", "MatMul [0]", "0.25"):
        assert part in text


def test_options_are_those_of_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["options", "--json"]) == 0
    assert [fact["key"] for fact in json.loads(capsys.readouterr().out)] == list(OPTIONS)
    assert cli.main(["options", "validationMode"]) == 0
    assert OPTIONS["validationMode"].effect in capsys.readouterr().out
    assert cli.main(["options", "validation"]) == 2
    assert "did you mean 'validationMode'?" in capsys.readouterr().err


# Sends the signal when the modules of a command are imported, at the import with a given number.
INTERRUPTED = """
import os, signal, sys
from onnxruntime_ep_wgpu.start import main

class Interrupt:
    left = int(sys.argv.pop(1))

    def find_spec(self, *about):
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupt())
sys.exit(main())
"""


def started(*arguments: str, closing: str = "") -> subprocess.CompletedProcess[str]:
    """Python with these arguments in a process of its own, with this package."""
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(sys.path)}
    command = ["sh", "-c", f'exec "$@" {closing}', "sh", sys.executable, *arguments]
    return patience.run(command, env=environment)


@pytest.mark.parametrize(
    "number",
    [1, 9, 65, *(pytest.param(it, marks=pytest.mark.exhaustive) for it in (2, 3, 5, 17, 33, 100, 140, 180, 220))],
)
def test_an_interrupt_while_modules_are_imported_ends_the_command_without_a_word(number: int) -> None:
    done = started("-c", INTERRUPTED, str(number), "info", "--json")
    assert (done.returncode, done.stderr) == (130, "")


@pytest.mark.skipif(sys.platform == "win32", reason="os.kill ends the process on Windows")
@pytest.mark.parametrize("goes_on", [False, True], ids=["waits", "met"])
def test_an_interrupt_that_has_to_wait_is_told(
    goes_on: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The line comes while the main thread is still busy; none when the command has met the interrupt."""
    told = threading.Event()
    monkeypatch.setattr(_waits, "SECONDS", 0.0)
    monkeypatch.setattr(_waits, "_LATE", float("inf") if goes_on else 0.0)
    monkeypatch.setattr(_waits, "_met_at", [0.0])
    monkeypatch.setattr(_waits, "print", lambda *a, **k: (print(*a, **k), told.set()), raising=False)
    before = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        with _waits.reporting_waits():
            if goes_on:
                _waits.met()
            os.kill(os.getpid(), signal.SIGINT)
            assert goes_on or told.wait(patience.SECONDS)
    finally:
        signal.signal(signal.SIGINT, before)
    assert capsys.readouterr().err == ("" if goes_on else f"{_waits.LINE}\n")
    assert signal.set_wakeup_fd(-1) == -1


@pytest.mark.parametrize("line", ["--version", "--help", "nonsense", "options"])
def test_what_needs_no_model_imports_neither_numpy_nor_onnxruntime(line: str) -> None:
    script = (
        "import sys; from onnxruntime_ep_wgpu import cli; code = cli.main(sys.argv[1:]);"
        " print(sorted({'numpy', 'onnx', 'onnxruntime', 'wgpu'} & sys.modules.keys())); sys.exit(code)"
    )
    done = started("-c", script, line)
    assert done.returncode == (2 if line == "nonsense" else 0) and done.stdout.endswith("[]\n")


@pytest.mark.parametrize(
    ("line", "nearest"),
    [
        ("exprot m.onnx", "did you mean export?"),
        ("run m.onnx --optoin a=b", "did you mean --option?"),
        ("cache sizes", "did you mean size?"),
        ("completion bahs", "did you mean bash?"),
        ("export --transformers d --dtype fp61", "did you mean fp16?"),
    ],
)
def test_the_nearest_name_is_suggested(line: str, nearest: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(line.split()) == 2
    assert nearest in capsys.readouterr().err


@pytest.mark.costly
@pytest.mark.parametrize("closing", [">&-", "2>&-"])
def test_a_closed_stream_is_no_error(closing: str) -> None:
    done = started("-m", "onnxruntime_ep_wgpu", "info", closing=closing)
    assert (done.returncode, done.stderr) == (0, "")
