"""Compiles a graph to a Program. The functions list the stages from top to bottom."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx_ir as ir

from ..program import program as p
from ..program.postfix import Postfix
from ..program.settings import DEFAULT, CompileSettings
from ..program.target import Target
from .dims import Dim, Names, less, symbols_of
from .emit.alike import Kernels
from .emit.kernel_text import Source
from .ir import LoweredGraph, Message, Storage, Tensor
from .kernels import kernels_of
from .lower.lower import lower
from .passes.cost import operations, traffic
from .passes.fuse import FusedGroup


def compile_graph(
    graph: ir.Graph,
    opset_imports: Mapping[str, int],
    target: Target,
    name: str = "",
    settings: CompileSettings = DEFAULT,
    values: Mapping[str, int] | None = None,
) -> p.Program:
    """Compiles a graph in which every node can run. Otherwise raises UnsupportedError or ModelError with the name of the node.

    Lowering folds constants, expands functions and composes views. Initializers stay references until upload. `values` fixes
    symbols of the graph; a Program for other values has the same names.
    """
    return compile_lowered(lower(graph, opset_imports, target, settings, values), target, name)


def compile_lowered(lowered: LoweredGraph, target: Target, name: str = "") -> p.Program:
    """Returns the Program of a lowered graph. This modifies the graph, so a graph can be compiled only once. Raises
    UnsupportedError."""
    (program,) = compile_for([target], lowered, name)
    return program


def compile_for(targets: Sequence[Target], lowered: LoweredGraph, name: str = "") -> list[p.Program]:
    """Like `compile_lowered`, for several Targets with the same lowering (`Target.lowered`)."""
    if len({it.lowered for it in targets}) != 1:
        raise ValueError(f"graphs have different lowerings for {', '.join(it.name for it in targets)}")
    lowered, groups = kernels_of(lowered, targets[0])
    return [_assemble(name, target, lowered, groups) for target in targets]


class _Values:
    """Numbers the tensors and weights of a program in order of first use."""

    def __init__(self, names: Names) -> None:
        self.names = names
        self.index: dict[Tensor, int] = {}
        self.values: list[p.Value] = []
        self.weights: list[object] = []

    def of(self, tensor: Tensor) -> int:
        if tensor not in self.index:
            weight = -1
            if tensor.storage is Storage.WEIGHT:
                weight = len(self.weights)
                self.weights.append(tensor.data)
            shape = tuple(map(self.names.of, tensor.shape))
            elements = tuple(map(self.names.of, tensor.elements))
            self.index[tensor] = len(self.values)
            self.values.append(p.Value(tensor.name, tensor.dtype, shape, tensor.storage, weight, elements))
        return self.index[tensor]


def _assemble(name: str, target: Target, lowered: LoweredGraph, groups: list[FusedGroup]) -> p.Program:
    names = Names()
    values = _Values(names)
    input_index = tuple(values.of(t) for t in lowered.inputs)
    output_index = tuple(values.of(t) for t in lowered.outputs)
    kernels: dict[tuple[object, ...], int] = {}
    texts: list[p.Kernel] = []
    dispatches = []
    generated = Kernels(target)
    for group in groups:
        source = generated.of(group)
        runs = group.runs * _runs_at_all(group)
        kernel = _kernel(source)
        key = (kernel.label, kernel.wgsl, kernel.bindings)
        if key not in kernels:
            kernels[key] = len(texts)
            texts.append(kernel)
        dispatches.append(
            p.Dispatch(
                kernel=kernels[key],
                args=tuple(values.of(t) for t, _, _ in source.bindings),
                uniforms=tuple(map(names.of, source.uniforms)),
                guards=tuple(names.of(guard) for guard, _, _ in source.variants),
                workgroups=tuple(names.of(count * runs) for _, _, count in source.variants),
                origin=group.origin,
                operators=tuple(lowered.operators.get(name, "") for name in group.origin),
                flops=names.of(operations(group)),
                traffic=names.of(traffic(group)),
                repeats=names.of(source.repeats),
                ranges=tuple((names.of(w.offset), names.of(w.nbytes)) if w else None for _, _, w in source.bindings)
                if any(byte_range for _, _, byte_range in source.bindings)
                else (),
            )
        )
    conditions = [names.of(condition) for condition, _ in lowered.checks]
    assertions = tuple(
        p.Assertion(values.of(a.values), names.of(a.low), names.of(a.high), a.what, a.origin)
        for a in lowered.assertions
    )
    # An element of an input is a symbol only if a shape, size, check or index needs its value.
    symbols = tuple(p.Symbol(*s) for s in lowered.symbols if s[0] in names.symbols)
    definitions = tuple(names.definitions)
    checks = tuple(
        p.Check(condition, *_message(message, names, {s.name for s in symbols}), message.limit)
        for condition, (_, message) in zip(conditions, lowered.checks, strict=True)
    )
    return p.Program(
        name=name,
        target=target.needs,
        symbols=symbols,
        definitions=definitions,
        inputs=input_index,
        outputs=output_index,
        values=tuple(values.values),
        kernels=tuple(texts),
        dispatches=tuple(dispatches),
        checks=checks,
        assertions=assertions,
        message_definitions=tuple(names.definitions[len(definitions) :]),
        declined=tuple(lowered.declined),
        aliases=tuple((values.of(output), values.of(source)) for output, source in lowered.aliases),
        sized=tuple((values.of(output), values.of(shape)) for output, shape in lowered.sized),
        weights=tuple(values.weights),
    )


def _runs_at_all(group: FusedGroup) -> Dim:
    """Returns 0 in runs where all stored results are empty, else 1. The plan cannot derive this for a tensor placed in another
    one."""
    if group.anchor is None or not any(tensor.place for tensor in group.stores):
        return 1  # a kernel of maps has zero workgroups then
    return less(0, sum((tensor.size for tensor in group.stores), start=0))


def _message(message: Message, names: Names, known: set[str]) -> tuple[str, tuple[Postfix, ...]]:
    """Returns a message with its dims in postfix form. A dim with a symbol that the Program lacks becomes text."""
    shown, dims = [], []
    for dim in message.dims:
        if symbols_of(dim) <= known:
            shown.append("{}")
            dims.append(names.of(dim))
        else:
            shown.append(str(dim).replace("{", "{{").replace("}", "}}"))
    return message.text.format(*shown) if len(dims) < len(shown) else message.text, tuple(dims)


def _kernel(source: Source) -> p.Kernel:
    bindings = tuple("read_write" if written else "read" for _, written, _ in source.bindings)
    texts = tuple(text for _, text, _ in source.variants)
    return p.Kernel(source.label, texts, bindings, len(source.uniforms), source.makes_infinity)
