"""Compile a model for browsers: Programs, weights in chunks with hashes, and a manifest, or one file; or a whole folder."""

from __future__ import annotations

import argparse
import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..api.precision import Precision, Reduced
from ..api.transformers_export import SUFFIXES, export_transformers
from ..api.web_export import CHUNK_BYTES, Exported, export
from ..api.web_files import GRAIN
from ..errors import FreeSizeError, OptionError, PlaceTakenError
from ._model import add_input_arguments, add_override_argument, by_options, check_file, given_sizes, make_feeds
from ._output import show_json, show_lines, show_note, show_pairs, show_table

FAR = 1e-2  # relative to an output's largest value; real inputs may have smaller errors
UNITS = {"": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "model", type=Path, nargs="?", metavar="MODEL", help="an ONNX file, or one in ONNX Runtime's format (.ort)"
    )
    parser.add_argument(
        "--transformers",
        type=Path,
        metavar="DIR",
        help="a model folder of transformers.js: config, tokenizer, onnx/*.onnx",
    )
    parser.add_argument(
        "--dtype",
        action="append",
        metavar="NAME",
        choices=SUFFIXES,
        help=f"with --transformers: only models of {', '.join(SUFFIXES)}",
    )
    parser.add_argument("--output", type=Path, metavar="PATH", help="where to write (MODEL.wgpu)")
    parser.add_argument("--overwrite", action="store_true", help="replace what an export wrote there before")
    add_override_argument(parser)
    parser.add_argument(
        "--single-file", action="store_true", help="write one file, which a session can load from bytes"
    )
    parser.add_argument(
        "--with-onnx", action="store_true", help="keep the ONNX model beside the export, for pages without WebGPU"
    )
    parser.add_argument(
        "--chunk", metavar="SIZE", default=str(CHUNK_BYTES), help="largest file of weights, such as 64MB (8MiB)"
    )
    parser.add_argument(
        "--fp16", action="store_true", help="float16, except for inputs, outputs and values that would overflow"
    )
    weights = parser.add_mutually_exclusive_group()
    weights.add_argument("--int4", action="store_const", const=4, dest="bits", help="weights of products in 4 bits")
    weights.add_argument("--int8", action="store_const", const=8, dest="bits", help="weights of products in 8 bits")
    add_input_arguments(parser)


def main(args: argparse.Namespace) -> int:
    try:
        return _main(args)
    except FreeSizeError as error:
        raise FreeSizeError(error.reason, error.keys, by_options(error.keys)) from error
    except PlaceTakenError as error:
        ways = ["--overwrite replaces an export"] * (not args.overwrite) + ["--output PATH names another place"]
        raise PlaceTakenError(error.reason, ", ".join(ways)) from error


def _main(args: argparse.Namespace) -> int:
    if (args.model is None) == (args.transformers is None):
        raise OptionError("name one model, or with --transformers one folder")
    if args.transformers is None and args.dtype:
        raise OptionError("--dtype chooses among the models of a folder: add --transformers")
    if not (args.fp16 or args.bits):
        seed = [] if args.seed is None else [args.seed]
        for name, given in (("--dim", args.dim), ("--shape", args.shape), ("--input", args.input), ("--seed", seed)):
            if given:
                raise OptionError(
                    f"{name} {given[0]} sets inputs that measure the error of --fp16, --int4 or --int8, and none of these is"
                    " given; --override NAME=SIZE fixes a free dimension"
                )
    chunk_bytes = _bytes(args.chunk)
    precision = Precision(args.fp16, args.bits)
    if args.transformers is not None:
        if precision:
            raise OptionError("--fp16, --int4 and --int8 are for one model; a folder has its own models of each dtype")
        return _folder(args, given_sizes(args), chunk_bytes)
    check_file(args.model)
    overrides = given_sizes(args)
    found = export(
        args.model, args.output, overrides=overrides, single_file=args.single_file, chunk_bytes=chunk_bytes,
        precision=precision, samples=_samples(args, overrides) if precision else None, with_onnx=args.with_onnx,
        overwrite=args.overwrite,
    )  # fmt: skip
    _warn_contradictions(found)
    if args.json:
        show_json(asdict(found) | {"path": str(found.path)})
        return 0
    show_pairs({
        "written": str(found.path), "targets": ", ".join(found.targets), "weights": found.weights,
        "programs and manifest": found.programs, "kernels": found.kernels, "dispatches": found.dispatches,
        "needs the CPU": "nothing",
    })  # fmt: skip
    show_table(("file", "bytes"), [list(it) for it in found.files], "\nfiles")
    if found.reduced:
        _show_errors(found.reduced, made_up=not args.input)
    return 0


def _samples(args: argparse.Namespace, overrides: dict[str, int]) -> dict[str, Any]:
    """Returns inputs from --input, or made up, for a run on the CPU provider."""
    import onnxruntime as ort

    from ..api.external_data import check_external_data
    from ..api.free_dimensions import fix
    from ..api.model_file import plain_settings

    check_external_data(args.model)
    settings = plain_settings()  # the session is only used for its inputs
    model = fix(str(args.model), overrides, settings, "--override").model
    return make_feeds(ort.InferenceSession(model, settings, providers=["CPUExecutionProvider"]), args)


def _warn_contradictions(found: Exported) -> None:
    if found.contradicted:
        shown = "; ".join(found.contradicted[:3])
        more = f"; and {len(found.contradicted) - 3} more" if len(found.contradicted) > 3 else ""
        show_note(
            f"warning: {found.path.name} uses calculated shapes where the model declares different ones: {shown}{more}"
        )


def _show_errors(reduced: Reduced, made_up: bool) -> None:
    rows = [[it.output, f"{it.largest:.2g}", f"{it.rms:.2g}", f"{it.scale:.3g}"] for it in reduced.errors]
    show_table(("output", "largest error", "rms error", "largest value"), rows, "\nagainst float32, in one run")
    far = [it for it in reduced.errors if it.largest > FAR * it.scale]
    if far and made_up:
        show_note(
            f"note: {', '.join(it.output for it in far)}: the error is more than {FAR:.0%} of the largest value, for inputs that"
            " are made up; --input NAME=FILE.npy measures it with real ones"
        )
    if reduced.quantised:
        show_lines(f"products with smaller weights: {reduced.quantised}")
    if reduced.kept:
        show_lines(f"float32, because they would overflow: {', '.join(reduced.kept)}")


def _folder(args: argparse.Namespace, overrides: dict[str, int], chunk_bytes: int) -> int:
    found = export_transformers(
        args.transformers,
        args.output,
        dtypes=args.dtype,
        overrides=overrides,
        chunk_bytes=chunk_bytes,
        with_onnx=args.with_onnx,
        overwrite=args.overwrite,
    )
    for it in found.models:
        _warn_contradictions(it)
    if args.json:
        show_json(asdict(found))
        return 0
    show_pairs({"written": str(found.path), "copied": ", ".join(found.copied), "needs the CPU": "nothing"})
    rows = [[it.path.name, it.weights, it.programs, it.kernels, it.dispatches] for it in found.models]
    show_table(("model", "weights", "programs and manifest", "kernels", "dispatches"), rows, "\nmodels")
    return 0


def _bytes(text: str) -> int:
    match = re.fullmatch(r"(\d+) ?([KMG]i?B)?", text, re.IGNORECASE)
    if not match:
        raise OptionError(f"--chunk {text}: write a size such as 16MB, 64MiB or 1000000")
    found = int(match[1]) * UNITS[(match[2] or "").upper()]
    if found < GRAIN:
        raise OptionError(f"--chunk {text}: a chunk has at least {GRAIN} bytes; write a size such as 16MB")
    return found
