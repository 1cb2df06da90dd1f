"""Shared by tools that take a model: arguments, session creation, and inputs from files or made up.

In: parsed arguments. Out: a session on WebGPU and its inputs. Invariant: an unusable argument raises an error with the input's
name and the expected value.
"""

from __future__ import annotations

import argparse
import re
import shlex
import zipfile
from ast import literal_eval
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from ..errors import DeviceError, FreeSizeError, InputError, OptionError, UnsupportedError
from ._output import show_note
from ._sizes import sizes

if TYPE_CHECKING:
    from ..device import Adapter
    from ._output import Steps

Value = TypeVar("Value")
_NUMBER = r"[-+]?(?:0|[1-9][0-9]*)(?:\.[0-9]*)?(?:[eE][-+]?[0-9]+)?"
NUMBERS = re.compile(rf"{_NUMBER}(?:,{_NUMBER})*")

NUMPY_TYPES = {
    "tensor(float)": np.float32, "tensor(float16)": np.float16, "tensor(double)": np.float64, "tensor(bool)": np.bool_,
    "tensor(int8)": np.int8, "tensor(int16)": np.int16, "tensor(int32)": np.int32, "tensor(int64)": np.int64,
    "tensor(uint8)": np.uint8, "tensor(uint16)": np.uint16, "tensor(uint32)": np.uint32, "tensor(uint64)": np.uint64,
}  # fmt: skip


def whole(least: int) -> Callable[[str], int]:
    """Returns an argparse type: an integer of at least `least`."""

    def parse(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f"{text!r} is not an integer of at least {least}")
        return int(text)

    return parse


def adapter_of(number: int) -> Adapter:
    """Returns the adapter of an index, as for `--adapter`. Raises OptionError, and DeviceError if there is no adapter."""
    from ..device import adapters, adapters_problem

    found = adapters()
    if not found:
        raise DeviceError(adapters_problem() or "no WebGPU adapter")
    if number >= len(found):
        indices = ", ".join(str(adapter.index) for adapter in found)
        raise OptionError(f"--adapter {number}: no such adapter; there are: {indices}")
    return found[number]


def check_file(path: Path, kind: str = "an ONNX model") -> None:
    """Raises FileNotFoundError, and InputError for a folder, an empty file or an export, none of which can be `kind`."""
    if not path.exists():
        url = "; an address is not read: fetch the model first" if path.parts[:1] in (("http:",), ("https:",)) else ""
        raise FileNotFoundError(f"there is no file {path}{url}")
    from ..api.web_files import is_export

    if is_export(path):
        raise InputError(
            f"{path} is an export already, for browsers: name the file of {kind}, as the one that it was made of"
        )
    if path.is_dir():
        raise InputError(f"{path} is a folder; name the file of {kind}")
    if path.is_file() and not path.stat().st_size:
        raise InputError(f"{path} is empty (0 bytes) and not {kind}")


def add_model_arguments(parser: argparse.ArgumentParser, model: str = "an ONNX file") -> None:
    """Adds the arguments of a model and its device. `model` is the help text of MODEL."""
    parser.add_argument("model", type=Path, metavar="MODEL", help=model)
    add_device_arguments(parser)
    add_override_argument(parser)
    add_custom_ops_argument(parser)


def add_custom_ops_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--custom-ops", action="append", default=[], type=Path, metavar="LIBRARY",
        help="a library of operators of the model, as that of onnxruntime-extensions; may be repeated",
    )  # fmt: skip


def register_custom_ops(settings: Any, libraries: Iterable[Path]) -> None:
    """Adds operator libraries to SessionOptions. Raises InputError for a file that is not one."""
    for path in libraries:
        check_file(path, "a library of operators")
        try:
            settings.register_custom_ops_library(str(path.resolve()))
        except Exception as error:
            raise InputError(f"--custom-ops {path}: {' '.join(str(error).split())}") from error


def add_override_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--override", action="append", default=[], metavar="NAME=SIZE",
        help="fix a free dimension of the model, by its name or as INPUT.shape[AXIS]; may be repeated",
    )  # fmt: skip


def add_device_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--device", metavar="D", help="number or part of the name of a device (see wgpu-ep info)")
    parser.add_argument(
        "--option", action="append", default=[], metavar="KEY=VALUE", help="a provider option; may be repeated"
    )


def given_options(args: argparse.Namespace) -> dict[str, Any]:
    """Returns the provider options of --option. Raises OptionError if a key has two values."""
    return once("--option", (_pair(text, "--option", "KEY=VALUE") for text in args.option))


def given_device(args: argparse.Namespace) -> int | str | None:
    """Returns the value of --device: a number, a part of a name, or None."""
    return int(args.device) if args.device is not None and args.device.isdecimal() else args.device


def given_sizes(args: argparse.Namespace) -> dict[str, int]:
    """Returns the sizes of --override. Raises OptionError if the model has no such free dimension."""
    from ..api.free_dimensions import free_in, read_structure, sizes_of

    found = once("--override", (dimension(text, "--override") for text in args.override))
    if found and args.model is not None and args.model.suffix != ".ort":
        sizes_of(free_in(read_structure(str(args.model), "--override")), found, "--override")
    return found


def by_options(keys: Iterable[str]) -> str:
    """Returns the command-line arguments that fix these free dimensions, for messages."""
    return f"{' '.join('--override ' + shlex.quote(f'{key}=SIZE') for key in keys)} fixes sizes that are free"


def open_session(
    args: argparse.Namespace, step: Steps | None = None, allow_cpu_only: bool = False, **session_options: Any
) -> Any:
    """Creates an InferenceSession on WebGPU. Prints the provider options without effect to stderr.

    `session_options` are attributes of SessionOptions. `step` displays the progress. Raises InputError if the file is not a
    model, OptionError, UnsupportedError if no node can run, and onnxruntime's errors.
    """
    import onnxruntime as ort
    from onnxruntime.capi.onnxruntime_pybind11_state import InvalidProtobuf

    from ..api.external_data import check_external_data
    from ..api.free_dimensions import hindered, keys_in
    from ..api.reports import state_of
    from ..api.session import session

    check_file(args.model)
    options, device, sizes = given_options(args), given_device(args), given_sizes(args)
    settings = ort.SessionOptions()
    settings.log_severity_level = 4  # errors are raised and printed once
    register_custom_ops(settings, args.custom_ops)
    for name, value in session_options.items():
        setattr(settings, name, value)
    try:
        made = session(
            args.model,
            device=device,
            sess_options=settings,
            free_dimensions=sizes,
            allow_cpu_only=True,
            on_progress=None if step is None else step.making,
            **options,
        )
    except InvalidProtobuf as error:
        raise InputError(f"{args.model} is not an ONNX model: {error}") from error
    except Exception:
        check_external_data(args.model)  # its errors name a remedy, unlike ONNX Runtime's
        raise
    assigned = state_of(made).assignment
    free = keys_in(made) if hindered(it.reason for it in assigned.placements()) else []
    if not allow_cpu_only and (nothing := assigned.describe_none_here()) and not assigned.all_forced():
        message = f"{nothing} (wgpu-ep explain shows every node with its reason)"
        raise FreeSizeError(message, free, by_options(free)) if free else UnsupportedError(message)
    if free:
        show_note(f"note: {by_options(free)}, which are a reason why nodes run on the CPU")
    for line in state_of(made).options.warnings():
        show_note(f"warning: {line}")
    return made


def add_input_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--shape", action="append", default=[], metavar="NAME=1,3,224,224", help="the shape of a made-up input"
    )
    parser.add_argument(
        "--dim", action="append", default=[], metavar="NAME=SIZE",
        help="the size of a free dimension, in all inputs that name it",
    )  # fmt: skip
    parser.add_argument(
        "--input",
        action="append",
        default=[],
        metavar="[NAME=]FILE.npy",
        help="an input from a file (.npz: of one array), or its numbers: NAME=16000, NAME=1,2,3",
    )
    parser.add_argument("--seed", type=whole(0), metavar="N", help="seed of the made-up inputs (0)")


def make_feeds(session: Any, args: argparse.Namespace) -> dict[str, Any]:
    """Returns an array per input: from --input, else random values with the sizes of --shape and --dim, or chosen ones
    (`_sizes`).

    Notes on stderr list the chosen sizes and the made-up inputs."""
    wanted = {value.name: value for value in session.get_inputs()}
    files = once("--input", (_input_argument(text, list(wanted)) for text in args.input))
    shapes = once("--shape", (_pair(text, "--shape", "NAME=1,3,224,224") for text in args.shape))
    for name in (*files, *shapes):
        if name not in wanted:
            raise InputError(f"the model has no input {name!r}; it has {', '.join(wanted)}")
    for name in files.keys() & shapes.keys():
        raise OptionError(
            f"--shape {name}={shapes[name]}: {name!r} has the shape of its file, {files[name]}; leave one out"
        )
    read = {name: _given(wanted[name], path) for name, path in files.items()}
    given = {name: _shape(name, text) for name, text in shapes.items()} | {n: array.shape for n, array in read.items()}
    dims = once("--dim", (dimension(text, "--dim") for text in args.dim))
    found = sizes({name: value.shape for name, value in wanted.items()}, dims, given)
    if found.sentence():
        show_note(f"note: {found.sentence()}")
    seed = args.seed or 0
    made_up = [name for name in wanted if name not in read]
    if made_up:
        show_note(f"note: made-up values (seed {seed}) for {', '.join(made_up)}: --input NAME=FILE.npy sets real ones")
    rng = np.random.default_rng(seed)
    return {
        name: read[name] if name in read else _made_up(rng, value, found.shapes[name]) for name, value in wanted.items()
    }


def once(option: str, pairs: Iterable[tuple[str, Value]]) -> dict[str, Value]:
    """Returns the pairs as a dict. Raises OptionError if a name has two values."""
    found: dict[str, Value] = {}
    for name, value in pairs:
        if found.setdefault(name, value) != value:
            raise OptionError(f"{option} {name}={value}: {name} is {found[name]} already; give it once")
    return found


def _pair(text: str, option: str, form: str) -> tuple[str, str]:
    key, separator, value = text.partition("=")
    if not separator or not key:
        raise OptionError(f"{option} {text}: write it as {form}")
    return key, value


def dimension(text: str, option: str) -> tuple[str, int]:
    """Parses NAME=SIZE. `option` is the command-line option, for messages."""
    name, size = _pair(text, option, "NAME=SIZE")
    if not size.isdecimal():
        raise OptionError(f"{option} {text}: a size is an integer of at least 0; unnamed dimensions stay free")
    return name, int(size)


def _input_argument(text: str, names: list[str]) -> tuple[str, Path]:
    name, separator, path = text.partition("=")
    if separator:
        return name, Path(path)
    if len(names) != 1:
        raise OptionError(
            f"--input {text}: the model has several inputs, write NAME={text}; they are {', '.join(names)}"
        )
    return names[0], Path(text)


def _given(value: Any, path: Path) -> Any:
    """Returns an input from numbers on the command line, or from a file. Raises InputError for a wrong type."""
    wanted = NUMPY_TYPES.get(value.type)
    if wanted is not None and not path.exists() and NUMBERS.fullmatch(str(path)):
        numbers = np.array([literal_eval(part) for part in str(path).split(",")])
        array: np.ndarray[Any, Any] = numbers.astype(wanted)
        if not np.array_equal(array.astype(numbers.dtype), numbers) and array.dtype.kind != "f":
            raise InputError(
                f"--input {value.name}={path}: the input is {value.type}, which does not have these values"
            )
        rank = len(value.shape)
        return array.reshape(()) if rank == 0 and array.size == 1 else array.reshape((1,) * (rank - 1) + (-1,))
    array = _read(path)
    if wanted is not None and array.dtype != wanted:
        raise InputError(
            f"input {value.name!r} is {value.type}, {path} has {array.dtype.name}: save it as {np.dtype(wanted).name}"
            f" (array.astype({np.dtype(wanted).name!r}))"
        )
    return array


def _read(path: Path) -> Any:
    check_file(path, "an array (.npy)")
    with open(path, "rb") as file:
        if not file.read(6).startswith((b"\x93NUMPY", b"PK")):
            raise InputError(f"{path} is not a .npy file, which numpy.save writes")
    try:
        found = np.load(path, allow_pickle=False)
        if isinstance(found, np.ndarray):
            return found
        with found:
            names = found.files
            if len(names) == 1:
                return found[names[0]]
    except (ValueError, zipfile.BadZipFile, EOFError) as error:
        raise InputError(f"{path} is not a .npy file of numbers: {error}") from error
    shown = ", ".join(names) or "none"
    raise InputError(f"{path} has {len(names)} arrays ({shown}): an input is one; save it alone, with numpy.save")


def _shape(name: str, text: str) -> tuple[int, ...]:
    try:
        shape = tuple(int(part) for part in text.split(",")) if text else ()
    except ValueError:
        shape = (-1,)
    if any(d < 0 for d in shape):
        raise OptionError(f"--shape {name}={text}: dimensions are integers separated by commas")
    return shape


def _made_up(rng: np.random.Generator, value: Any, shape: tuple[int, ...]) -> Any:
    """Returns made-up values.

    These are normally distributed floats, integers 0 and 1 (valid as tokens and indices), and random bools. Integer masks are
    all ones, as for a text without padding."""
    if value.type not in NUMPY_TYPES:
        raise InputError(f"input {value.name!r} is {value.type}, which cannot be made up: give it with --input")
    dtype = np.dtype(NUMPY_TYPES[value.type])
    if dtype.kind in "iu" and "mask" in value.name.lower():
        return np.ones(shape, dtype)
    return (rng.standard_normal(shape) if dtype.kind == "f" else rng.integers(0, 2, shape)).astype(dtype)
