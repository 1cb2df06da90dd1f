"""Exports an ONNX model as Programs and weights for a browser: a folder of files that are fetched in parallel, or one file.

In: an ONNX model, or one in ONNX Runtime's own format. Out: `Exported`, a description of the written files. A graph that needs
several Programs becomes a Flow of them (`flow/`).

Invariants:

- The export runs on every WebGPU device (`web-baseline`), or nothing is written.
- It has Programs for several Targets over one pool of weights. The runtime uses the first one with features that the adapter has.
- A folder appears completely or not at all.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..compiler.tune import SWIFTSHADER
from ..errors import FreeSizeError, OptionError, UnsupportedError, cut
from ..program.dtypes import DType
from ..program.flow import Flow, leaves
from ..program.program import Program
from ..program.target import (
    DISCRETE,
    F16,
    INTEGER_DOTS,
    SUBGROUP_MATRIX,
    SUBGROUPS,
    WEB_BASELINE,
    MatrixUnit,
    Target,
    lack,
)
from ..records import dataclass
from ..writing import atomic_folder, errors_about, refuse_existing
from .arguments import model_argument
from .constants import calculate_constants
from .free_dimensions import hindered, in_python, keys_of
from .model_file import read_model
from .original import kept, original_of
from .overwriting import check_place, is_one_export
from .precision import Precision, Reduced, reduce
from .web_files import GRAIN, described, pack, write_folder

if TYPE_CHECKING:
    import onnx_ir as ir

CHUNK_BYTES = 8 << 20  # small enough to fetch and check in parallel, and to limit memory
HALVES = replace(WEB_BASELINE, name="web-f16", features=frozenset({F16}))
REDUCING = replace(WEB_BASELINE, name="web-subgroups", features=frozenset({SUBGROUPS}))
BOTH = replace(WEB_BASELINE, name="web-f16-subgroups", features=HALVES.features | REDUCING.features)
# Most GPUs support larger workgroups with more memory. Browsers offer them in steps; this is the next one. Kernels of the
# native provider rely on it, so a page uses the same kernels if possible.
LARGE = replace(WEB_BASELINE, name="web-large", max_invocations=1024, max_workgroup_storage=32 << 10)
# The configuration that browsers offer on NVIDIA's matrix units. Other vendors have other sizes, or several subgroup sizes.
MATRICES = (MatrixUnit(16, 16, 16, "f16", "f32", 32),)
_WORKGROUP = re.compile(r"@workgroup_size\((\d+)\)")
# For browsers without a GPU, where compiling kernels for GPUs takes seconds.
SOFTWARE = replace(WEB_BASELINE, name="web-software", software=True, tuning=SWIFTSHADER)


@dataclass(frozen=True)
class Exported:
    """The result of `export`. All sizes are bytes.

    - `path`: the export's folder or file.
    - `targets`: the names of the Targets with their own Program.
    - `programs`: the size of all files without weights.
    - `weights`: the size of the weights on a device.
    - `kernels`, `dispatches`: their numbers in the Program for all adapters.
    - `files`: name and size of each file in the folder, or in the one file.
    - `reduced`: the errors caused by `precision`.
    - `contradicted`: a sentence for each declared shape that was dropped because the calculated shape differs.
    - `sources`: the model's file and the files of its weights.
    """

    path: Path
    targets: tuple[str, ...]
    programs: int
    weights: int
    kernels: int
    dispatches: int
    files: tuple[tuple[str, int], ...]
    reduced: Reduced | None = None
    contradicted: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()


def export(
    model: str | os.PathLike[str],
    output: str | os.PathLike[str] | None = None,
    *,
    overrides: Mapping[str, int] | None = None,
    single_file: bool = False,
    chunk_bytes: int = CHUNK_BYTES,
    precision: Precision | None = None,
    samples: Mapping[str, Any] | None = None,
    with_onnx: bool = False,
    overwrite: bool = False,
) -> Exported:
    """Compiles a model for browsers and writes it to `output`, by default `model.onnx.wgpu/`, or `model.wgpu` as one file.

    - `overrides`: fixes free dimensions of inputs by name or denotation, as in `session(free_dimensions=...)`.
    - `single_file`: writes one file instead of a folder.
    - `chunk_bytes`: the largest size of a file of weights.
    - `precision`: reduces the precision of values or weights. It requires `samples`, an array for each input, to measure the
      error and to find values that overflow.
    - `with_onnx`: keeps the model beside the export, where pages without WebGPU search for it (`original_of`).
    - `overwrite`: replaces an earlier export.

    Raises UnsupportedError with the nodes that WebGPU cannot run, OptionError, ModelError, ProgramError, WriteError, and
    PlaceTakenError if another file is in the way.
    """
    source = Path(str(model_argument(model, or_bytes=False)))
    if not source.exists():
        raise FileNotFoundError(f"there is no file {source}")
    if chunk_bytes < GRAIN:
        raise OptionError(f"chunk_bytes is {chunk_bytes}, a chunk has at least {GRAIN} bytes")
    place = Path(output) if output is not None else _place(source, single_file)
    check = is_one_export if overwrite else refuse_existing
    check_place(place, check)
    if precision is not None and not isinstance(precision, Precision):
        raise TypeError(
            f"precision: {cut(precision)} is not a Precision; pass Precision(halves=True) for halves, Precision(weight_bits=8) for"
            " smaller weights of products, or both"
        )
    if samples is not None and precision is None:
        raise OptionError(
            "samples only serve to measure the error of smaller numbers, and precision is missing: pass"
            " precision=Precision(halves=True), or leave samples out"
        )
    if precision and samples is None:
        raise OptionError(
            "smaller numbers need `samples`, an array for each input, to find what overflows and the error"
        )
    sources = _sources(source)
    wanted = sum(Path(it).stat().st_size for it in sources)
    with atomic_folder(place, check) as temporary, kept(source, place) if with_onnx else nullcontext() as whole:
        reduced = None
        if precision and samples is not None:
            made = reduce(source, precision, samples, _folder(temporary))
            reduced, source = Reduced(made.errors, made.kept, made.quantised), made.path
        given = read_model(source, overrides)
        calculate_constants(given)
        programs, contradicted = _programs(source, given)
        base = programs[-1]
        partial = _folder(temporary, "" if single_file else place.name)
        # The bytes of a single file do not identify their source, so the manifest does.
        onnx = described(whole, place.name, original_of(place).name) if whole is not None and single_file else None
        manifest = write_folder(partial, programs, chunk_bytes // GRAIN * GRAIN, wanted, onnx)
        files = tuple((it.name, it.stat().st_size) for it in sorted(partial.iterdir()))
        if single_file:
            pack(temporary / place.name, partial, manifest)
    weights = int(manifest["weights"]["bytes"])
    names = tuple(program.target.name for program in programs)
    code = sum(size for _, size in files) - sum(int(it["bytes"]) for it in manifest["weights"]["chunks"])
    kernels, dispatches = (
        sum(map(len, it)) for it in zip(*((it.kernels, it.dispatches) for it in leaves(base)), strict=True)
    )
    return Exported(place, names, code, weights, kernels, dispatches, files, reduced, contradicted, sources)


def _folder(temporary: Path, name: str = "") -> Path:
    """Creates a folder in the temporary one, with a unique name if `name` is empty."""
    with errors_about(temporary):
        if not name:
            return Path(tempfile.mkdtemp(dir=temporary))
        (temporary / name).mkdir()
        return temporary / name


def _place(model: Path, single_file: bool) -> Path:
    return model.with_suffix(".wgpu") if single_file else model.with_name(f"{model.name}.wgpu")


def _sources(source: Path) -> tuple[str, ...]:
    """Returns the model's file and the files of its weights."""
    import onnx_ir as ir

    graph = read_model(source).graph
    beside = {
        str(it.const_value.path) for it in graph.initializers.values() if isinstance(it.const_value, ir.ExternalTensor)
    }
    return (str(source), *sorted(beside))


# ---- compiling


def _compiled(source: Path, model: ir.Model, *targets: Target) -> list[Program] | list[Flow]:
    """Compiles Programs for Targets with the same lowering, or Flows if the graph needs several Programs.

    Compilation may change the model, but not its meaning. Raises UnsupportedError with the nodes that cannot run."""
    from ..compiler.compile import compile_for, compile_graph
    from ..compiler.lower.lower import attempt, lower

    graph, name = model.graph, model.graph.name or source.stem
    found = attempt(graph, model.opset_imports, targets[0])
    if found.lowered is not None:
        # A graph from `attempt` has neither unused inputs nor outputs without a producer. A model may have them: lower it again.
        whole = all(it.uses() and it.const_value is None for it in graph.inputs) and all(
            it.producer() is not None for it in graph.outputs
        )
        lowered = found.lowered if whole else lower(graph, model.opset_imports, targets[0])
        return compile_for(targets, lowered, name)
    if any(found.reasons) or found.waits:
        from .flow.compiled import flows_of
        from .flow.division import NotDivided

        try:
            return flows_of(model, targets, name)
        except NotDivided as error:
            refused = error.reasons
        reasons = [
            f"{node.op_type} {node.name or ', '.join(str(it.name) for it in node.outputs)!r}: {reason}"
            for node, reason in refused
        ]
        shown = "; ".join(reasons[:5]) + (f"; and {len(reasons) - 5} more" if len(reasons) > 5 else "")
        count = "1 node" if len(reasons) == 1 else f"{len(reasons)} nodes"
        text = f"{source} has {count} that cannot run on WebGPU: {shown}"
        free = keys_of((it.name or "", _dims(it.shape)) for it in graph.inputs)
        if free and (hindered(found.reasons) or hindered([reason for _, reason in refused])):
            raise FreeSizeError(text, free, in_python(free, "overrides"))
        raise UnsupportedError(text)
    return [compile_graph(graph, model.opset_imports, target, name) for target in targets]  # raises the reason


def _dims(shape: ir.Shape | None) -> list[int | str | None]:
    return [dim if isinstance(dim, int) else dim.value for dim in shape or ()]


def _programs(source: Path, model: ir.Model) -> tuple[list[Program | Flow], tuple[str, ...]]:
    """Returns the Programs, the one for all adapters last, and notes on wrong shapes in the model.

    Programs for better or worse adapters come first, if they differ from it. Wrong declared shapes are dropped. ONNX Runtime
    warns about them and runs the model."""
    try:
        return _programs_as_declared(source, model), ()
    except UnsupportedError:
        contradicted = _contradicted(model)
        if not contradicted:
            raise
        return _programs_as_declared(source, model), contradicted


def _contradicted(model: ir.Model) -> tuple[str, ...]:
    """Removes declared shapes that differ from the calculated ones from the model, and returns a note on each."""
    from ..compiler.lower.lower import attempt

    made = {value.name: value for node in model.graph for value in node.outputs if value.shape is not None}
    declared = {name: value.shape for name, value in made.items()}
    for value in made.values():
        value.shape = None
    calculated = attempt(model.graph, model.opset_imports, WEB_BASELINE).found
    notes = []
    for name, shape in declared.items():
        of_value = calculated.get(name or "")
        found = None if of_value is None or of_value.shape is None else _sizes(of_value.shape)
        dims = _sizes(shape or ())
        if found is None or _agree(dims, found):
            made[name].shape = shape
        else:
            notes.append(f"{name!r} is declared as {_brackets(dims)} and calculated as {_brackets(found)}")
    return tuple(notes)


def _sizes(shape: Iterable[object]) -> list[int | None]:
    """Returns the extents of a shape, with None for those that are not numbers."""
    return [dim if isinstance(dim, int) else None for dim in shape]


def _agree(declared: Sequence[int | None], found: Sequence[int | None]) -> bool:
    return len(declared) == len(found) and all(None in (a, b) or a == b for a, b in zip(declared, found, strict=True))


def _brackets(dims: Sequence[int | None]) -> str:
    return f"[{', '.join('?' if dim is None else str(dim) for dim in dims)}]"


def _programs_as_declared(source: Path, model: ir.Model) -> list[Program | Flow]:
    base, reducing = _compiled(source, model, WEB_BASELINE, REDUCING)
    richer: list[Program | Flow] = [reducing]
    # Adapters with larger workgroups but without f16 are rare, so f16 models get no Program for them.
    alone, together = LARGE, _large(REDUCING)
    if any(value.dtype is DType.FLOAT16 for it in leaves(base) for value in it.values):
        plain, both = _compiled(source, model, HALVES, BOTH)
        richer = [both, plain, reducing]
        alone, together = _large(HALVES), _large(BOTH)
    large, large_together = _compiled(source, model, alone, together)
    dotted: list[Program | Flow] = []
    best = _discrete(together)
    if _may_be_rounded(model):
        dotted += _compiled(source, model, _dotted(together), _dotted(alone))
        best = _dotted(best)
    (discrete,) = _compiled(source, model, best)
    # For bytes, matrix units need another copy of the weights, and an export must not have more weights than the model.
    units = _compiled(source, model, _with_units(best)) if F16 in best.features else []
    found = _distinct([*units, discrete, *dotted, large_together, richer[0], large, *richer[1:], base])
    # A software adapter may refuse too long kernels; then it uses the Program for all.
    with suppress(UnsupportedError):
        (software,) = _compiled(source, model, SOFTWARE)
        if _wgsl_texts(software) != _wgsl_texts(base):
            found.insert(0, software)
    return found


def _large(target: Target) -> Target:
    """Returns the Target with larger workgroups."""
    name = target.name.replace("web-", f"{LARGE.name}-")
    limits = {"max_invocations": LARGE.max_invocations, "max_workgroup_storage": LARGE.max_workgroup_storage}
    return replace(target, name=name, **limits)  # type: ignore[arg-type]


def _discrete(target: Target) -> Target:
    """Returns the Target for a discrete GPU. Those have subgroups and more that adapters with larger workgroups may lack."""
    return replace(target, name=f"{target.name}-discrete", features=target.features | {DISCRETE}, discrete=True)


def _with_units(target: Target) -> Target:
    """Returns the Target with matrix units."""
    return replace(
        target, name=f"{target.name}-matrices", features=target.features | {SUBGROUP_MATRIX}, matrices=MATRICES
    )


def _dotted(target: Target) -> Target:
    """Returns the Target with integer dot products. Adapters with these also have larger workgroups."""
    return replace(target, name=f"{target.name}-dots", features=target.features | {INTEGER_DOTS})


def _may_be_rounded(model: ir.Model) -> bool:
    """Returns whether the model allows products to round their rows to 8 bits. Otherwise integer dot products are useless."""
    from ..compiler.lower.ops.blocks import ROUNDED

    levels = (node.attributes.get_int("accuracy_level", 0) for node in model.graph.all_nodes())
    return ROUNDED in levels


def _distinct(programs: Sequence[Program | Flow]) -> list[Program | Flow]:
    """Returns the Programs with other kernels than the next Program that their adapters can run.

    The workgroup limit of each Target is lowered to the Program's largest workgroup."""
    kept: list[Program | Flow] = []
    for it in reversed(programs):
        other = next((program for program in kept if lack(program.target, it.target) is None), None)
        if other is None or _wgsl_texts(it) != _wgsl_texts(other):
            kept.insert(0, it)
    return [replace(it, target=replace(it.target, max_invocations=_largest(it))) for it in kept]


def _largest(program: Program | Flow) -> int:
    """Returns the invocations of the largest workgroup, but at least the limit that every adapter has."""
    sizes = (int(size) for texts in _wgsl_texts(program) for text in texts for size in _WORKGROUP.findall(text))
    return max(WEB_BASELINE.max_invocations, *sizes, 0)


def _wgsl_texts(program: Program | Flow) -> list[tuple[str, ...]]:
    return [kernel.wgsl for it in leaves(program) for kernel in it.kernels]
