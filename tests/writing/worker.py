"""One process that writes files again and again, each time in a child of its own that is stopped in another way.

    python -m tests.writing.worker FOLDER [[writer, how, number], ...]

`how` is `killed`: SIGKILL before the child opens, renames, removes or makes something in the folder for the `number`th time;
`cut`: the system ends it when a file gets byte `number`, which no Python code can notice; `full`: no file may have more than
`number` bytes, which is an error as on a full disk. Out: JSON, a list of `Ended` as dicts.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import sys
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx.helper import make_node

from onnxruntime_ep_wgpu.api.transformers_export import export_transformers
from onnxruntime_ep_wgpu.api.web_export import export
from onnxruntime_ep_wgpu.program.file import load, save
from onnxruntime_ep_wgpu.program.target import WEB_BASELINE
from onnxruntime_ep_wgpu.program.tuning import Choice, write_choices
from onnxruntime_ep_wgpu.writing import write_file
from tests.support import compile_model, make_model

AUDITED = ("open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.chmod")


@dataclass(frozen=True)
class Ended:
    """How a child ended. `signal` ended it, or 0; `error` is what it raised; `place` is `old`, `new`, `absent` or `damaged`;
    `left` are names beside it."""

    signal: int
    error: str
    place: str
    left: tuple[str, ...]


def small_model() -> onnx.ModelProto:
    weights = {"w": np.arange(600, dtype=np.float32).reshape(3, 200)}
    return make_model([make_node("MatMul", ["x", "w"], ["y"])], {"x": (np.float32, ["n", 3])}, weights)


def prepare(folder: Path) -> None:
    """What the writers read, in a folder of their own."""
    onnx.save(small_model(), folder / "m.onnx")
    (folder / "hub" / "onnx").mkdir(parents=True)
    onnx.save(small_model(), folder / "hub" / "onnx" / "model.onnx")
    (folder / "hub" / "config.json").write_text('{"model_type": "bert"}')
    (folder / "hub" / "tokenizer.json").write_text("{}" * 999)
    save(compile_model(small_model(), WEB_BASELINE), folder / "program")


def _choices(count: int) -> list[Choice]:
    return [Choice("matmul", (("m", k),)) for k in range(count)]


@dataclass(frozen=True)
class Writer:
    """`write(place, inputs)` writes; `before` puts there what was there, where something may be."""

    write: Callable[[Path, Path], Any]
    before: Callable[[Path, Path], Any] | None = None


WRITERS = {
    "text": Writer(lambda at, _: write_file(at, "new" * 2000), lambda at, _: write_file(at, "old" * 3000)),
    "table": Writer(lambda at, _: write_choices(_choices(90), at, "a"), lambda at, _: write_choices(_choices(3), at, "a")),
    # A Program where it was loaded from: its weights are in the file that is replaced.
    "program": Writer(lambda at, _: save(replace(load(at), name="new"), at), lambda at, here: shutil.copy(here / "program", at)),
    "folder": Writer(lambda at, inputs: export(inputs / "m.onnx", at)),
    "file": Writer(lambda at, inputs: export(inputs / "m.onnx", at, single_file=True)),
    "hub": Writer(lambda at, inputs: export_transformers(inputs / "hub", at)),
}  # fmt: skip


def contents(place: Path) -> dict[str, bytes] | bytes | None:
    """All of a file or a folder; None when nothing is there."""
    if place.is_dir():
        return {str(it.relative_to(place)): it.read_bytes() for it in sorted(place.rglob("*")) if it.is_file()}
    return place.read_bytes() if place.exists() else None


def stopped(how: str, number: int, folder: Path) -> None:
    """Arranges in this process that it is stopped."""
    if how == "whole":
        return
    if how == "killed":
        left = [number]

        def audit(event: str, args: tuple[Any, ...]) -> None:
            if (
                event in AUDITED
                and isinstance(args[0], (str, bytes, os.PathLike))
                and os.fsdecode(args[0]).startswith(str(folder))
            ):
                left[0] -= 1
                if left[0] < 0:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(audit)
        return
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL if how == "cut" else signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (number, number))


def run(writer: Writer, how: str, number: int, folder: Path, inputs: Path) -> Ended:
    """Writes in a child that is stopped."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    place = folder / "place"
    if writer.before is not None:
        writer.before(place, inputs)
    old = contents(place)
    reader, sender = os.pipe()
    child = os.fork()
    if child == 0:
        said = ""
        try:
            stopped(how, number, folder)
            writer.write(place, inputs)
        except Exception as error:
            said = f"{type(error).__name__}: {error}"
        except BaseException:
            said = traceback.format_exc()
        os.write(sender, said.encode())
        os._exit(0)
    os.close(sender)
    with os.fdopen(reader) as pipe:
        error = pipe.read()
    _, status = os.waitpid(child, 0)
    found = contents(place)
    if how == "whole":
        NEW[id(writer)] = found
    new = NEW.get(id(writer))
    state = "absent" if found is None else "old" if found == old else "new" if found == new else "damaged"
    left = tuple(it.name for it in sorted(folder.iterdir()) if it != place)
    return Ended(os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0, error, state, left)


NEW: dict[int, Any] = {}
"""What a writer writes when nothing stops it."""


def main(folder: Path, jobs: list[tuple[str, str, int]]) -> list[Ended]:
    inputs = folder / "inputs"
    inputs.mkdir()
    prepare(inputs)
    ended = []
    for name, how, number in jobs:
        writer = WRITERS[name]
        if id(writer) not in NEW:
            run(writer, "whole", 0, folder / "outputs", inputs)
        ended.append(run(writer, how, number, folder / "outputs", inputs))
    return ended


if __name__ == "__main__":
    print(json.dumps([asdict(it) for it in main(Path(sys.argv[1]), json.loads(sys.argv[2]))]))
