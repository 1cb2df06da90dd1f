"""The contexts that one session writes when it compiles a model, or opens in a compiled model.

In: the session's graphs and compiled groups. Out: EPContext nodes and the files beside the compiled model; for a compiled
model, the outcomes of its nodes and the contexts of its groups.
Invariants: a model with contexts is not compiled again. A context is read once, at the decision on its node. Nodes that ran
elsewhere when the model was compiled do so again, without a new decision.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import ModelError, OptionError, UnsupportedError, cut
from ...kept.entry import EntryError, FormatError, digest_of
from ...runtime.weight_sources import FromModel
from ...writing import write_file
from ..abi import address
from ..assign.outcome import Alone, Elsewhere
from ..assign.shown import ties_in
from . import made_here, nodes
from .body_entries import BodyEntries
from .options import ContextOptions

if TYPE_CHECKING:
    from ...program.program import Program
    from ...program.settings import CompileSettings
    from ...program.target import Target
    from ...runtime.weight_sources import FilePlace
    from ..abi import Ort
    from ..assign.decision import Claim
    from ..assign.shown import ShownGraph, ShownNode
    from ..cached_compiler import CachedCompiler, CompiledProgram
    from .bodies import WrittenBodies
    from .build_key import BuildKey
    from .content import GroupContext
    from .shared import SharedWeights

# ONNX Runtime keeps only the contexts of the last part, and its own error wrongly describes the model as already compiled.
EXPANDED = (
    "ONNX Runtime expanded an operator that is a function after the first parts of the model were compiled, and discards their"
    " contexts: write the model with SessionOptions.optimized_model_filepath in a session on the CPU provider, and compile that"
)


# A node: its name, inputs, outputs and attributes.
_Row = tuple[str, Sequence[str], Sequence[str], Mapping[str, "int | bytes"]]


class EPContexts:
    """The contexts of one session.

    * `target`, `settings`: those of the session's Programs.
    * `trusting`: kernels of any context need no bounds checks.
    * `checking`: the kernels of one group can have bounds checks.
    * `kept`: the only context of a model from the cache.
    """

    def __init__(
        self,
        ort: Ort,
        options: ContextOptions,
        target: Target,
        settings: CompileSettings,
        *,
        trusting: bool,
        checking: bool,
        kept: GroupContext | None = None,
    ) -> None:
        self._ort, self._options, self._target, self._settings = ort, options, target, settings
        self._trusted, self.checking, self._kept = trusting or kept is not None, checking, kept
        self._read: dict[frozenset[str], GroupContext] = {}
        self.elsewhere: dict[str, str] = {}  # nodes that run elsewhere: the reasons, by first output
        self._made: list[_Row] = []
        self._body_contexts: list[_Row] = []
        self.nodes: frozenset[int] = (
            frozenset()
        )  # addresses of the OrtNodes that are contexts, in the graph of the last decision
        self.written = 0
        self.sharing: list[SharedWeights] = []
        self._opened = self._main_graph_opened = False
        self.body_entries = BodyEntries()  # for bodies
        self.foreign = False  # whether `body_entries` is of a context that this user did not make
        self._bodies: WrittenBodies | None = None
        self._read_in_bodies: list[str] = []  # names of initializers of the main graph

    @cached_property
    def build_key(self) -> BuildKey:
        """The adapter, options and version for which the session compiles."""
        from .build_key import BuildKey

        return BuildKey.of(self._target, self._settings)

    @property
    def enabled(self) -> bool:
        """Whether the session writes a compiled model."""
        return self._options.enabled

    @property
    def opened(self) -> bool:
        """Whether the session's model is a compiled model."""
        return self._opened

    # ---- opening

    def outcomes(self, graph: ShownGraph, assigned: Sequence[str], path: str) -> dict[int, Alone | Elsewhere]:
        """Returns outcomes of nodes, by position, in a graph of the compiled model at `path`; none for other models.

        Raises ModelError.
        """
        found = {place: it for place, it in enumerate(graph) if not assigned[place] and nodes.is_context(it)}
        if found and self.enabled:
            raise ModelError(
                f"the model is compiled already: {len(found)} of its nodes are contexts of this package; compile the original"
                " model, or omit ep.context_enable"
            )
        for it in found.values():
            self._open(it, path or self._options.path)
        self.nodes = frozenset(address(it.handle) for it in found.values())
        made: dict[int, Alone | Elsewhere] = {place: Alone(nodes.OPERATOR) for place in found}
        for place, it in enumerate(graph):
            first = it.outputs[0].name if it.outputs else ""
            if self.opened and place not in made and not assigned[place] and first in self.elsewhere:
                made[place] = Elsewhere(self.elsewhere[first])
        return made

    def _open(self, node: ShownNode, path: str) -> None:
        from .content import GroupContext  # other sessions do not need it

        key = frozenset(it.name for it in node.outputs)
        if key in self._read:
            return
        try:
            context = self._kept
            if context is None:
                data, digest = nodes.data_of(node, path)
                if digest_of(data) != digest:
                    raise EntryError("it differs from the one at compilation")
                context = GroupContext(data, path)
            if len(context.inputs) != len(node.inputs) or len(context.outputs) != len(node.outputs):
                raise EntryError("its inputs or outputs do not match its node")
        except EntryError as error:
            raise damage_error(node, error) from error
        self._read[key] = context
        self.elsewhere |= context.elsewhere
        self._opened = True
        if context.body_entries:
            self.body_entries = BodyEntries(context.body_entries)
            self.foreign = self._is_foreign(context)

    def open_main_graph(self, source: str | bytes, path: str) -> bool:
        """Opens the contexts of the main graph for their entries for bodies, before ONNX Runtime presents that graph.

        `source`: the file name or the bytes of the model.
        Returns True at the first call if there are entries. Raises ModelError.
        """
        if self._main_graph_opened or self.enabled:
            return False
        self._main_graph_opened = True
        from .in_file import context_nodes

        for node in filter(nodes.is_context, context_nodes(source)):
            self._open(node, path or self._options.path)
        return bool(self.body_entries.entries)

    def take(self, graph: ShownGraph) -> tuple[ShownNode, GroupContext] | None:
        """Removes and returns the context of a group, with its node; None for a group of other nodes."""
        if len(graph) != 1 or not nodes.is_context(graph.nodes[0]):
            return None
        (node,) = graph
        return node, self._read.pop(frozenset(it.name for it in node.outputs))

    def program(
        self, node: ShownNode, context: GroupContext, compiler: CachedCompiler, outputs: Collection[str]
    ) -> tuple[CompiledProgram, ShownGraph]:
        """Returns the Program of a node's context, and its graph.

        `outputs`: the outputs of the node that are read outside. Raises ModelError, and UnsupportedError for a context that
        does not suit this session and cannot be compiled again.
        """
        try:
            foreign = self._is_foreign(context)
            named = zip(context.outputs, node.outputs, strict=True)
            # ONNX Runtime's optimiser may have removed the readers of the others.
            unread = {name for name, it in named if it.name not in outputs}
            return compiler.of_context(context, self.build_key, node.name, foreign, self.checking, unread)
        except EntryError as error:
            raise damage_error(node, error) from error

    def _is_foreign(self, context: GroupContext) -> bool:
        return not self._trusted and not made_here.is_made_here(context.digest)

    def shared(self, program: Program, in_files: Mapping[int, FilePlace]) -> SharedWeights | None:
        """Returns the weights of a Program, to share them with other sessions; None if this session does not share."""
        from .shared import SharedWeights

        if not self._options.shared:
            return None
        self.sharing.append(SharedWeights(program, in_files))
        return self.sharing[-1]

    # ---- writing

    def check_body(self, body: ShownGraph, parent: ShownNode, source: str | bytes) -> None:
        """Raises UnsupportedError if ONNX Runtime would write a body that differs from the model's.

        `source`: the path or the bytes of the model.
        """
        if not self.enabled:
            return
        from .bodies import WrittenBodies

        if self._bodies is None:
            self._bodies = WrittenBodies(source)
        if wrong := self._bodies.wrong(body, parent):
            called = cut(parent.name) if parent.name else f"the node that makes {cut(parent.outputs[0].name)}"
            text, constant = wrong
            raise UnsupportedError(text.format(node=f"{called} ({parent.op_type})", constant=cut(constant)))

    def decided(self, graph: ShownGraph, decision: Claim, assigned: Sequence[str]) -> str:
        """Records which nodes of the main graph run elsewhere, except nodes with bodies.

        The compiled model contains these unchanged, and its session decides on them again. Returns a warning about them, or "".
        """
        if not self.enabled:
            return ""
        self.elsewhere = {
            node.outputs[0].name: str(reason)
            for node, reason, holder in zip(graph, decision.reasons, assigned, strict=True)
            if reason is not None and not holder and node.outputs and not node.has_body
        }
        with_bodies = [it for it in graph if it.has_body]
        read = (value.name for it in with_bodies for value in it.implicit_inputs)
        self._read_in_bodies = [it for it in dict.fromkeys(read) if it in graph.initializers]
        names = [it.name for it in with_bodies]
        return (
            f"the compiled model has no Programs for some of the bodies of {cut(names)}, such as those with large calculated"
            " constants. The first session of the compiled model compiles them, and the cache of that machine stores them"
            " (WGPU_EP_CACHE)"
            if self.body_entries.missed
            else ""
        )

    def write(
        self,
        name: str,
        graph: ShownGraph,
        answer: CompiledProgram,
        inputs: Sequence[str],
        outputs: Sequence[str],
        declared: frozenset[str],
        path: str,
        source: bytes | None,
    ) -> None:
        """Writes the context of a group.

        `name`, `inputs`, `outputs`: those of the group's node. `path`: the path of the model; `source`: its bytes; `declared`:
        its inputs. Raises OptionError, ModelError, WriteError, and UnsupportedError if ONNX Runtime already has the contexts of
        an earlier part of the model.
        """
        if self.written:
            raise UnsupportedError(EXPANDED)
        from .content import WrittenGroup, bytes_of
        from .references import ReferenceWriter

        # ONNX Runtime writes initializers that are inputs of nodes in the compiled model, but not those that only bodies read.
        if not self._made:
            inputs = [*inputs, *(it for it in self._read_in_bodies if it not in inputs)]
        compiled = self._options.compiled_path(path)
        if not compiled and not self._options.embedded:
            raise OptionError(
                "the contexts of a model in memory go beside the compiled model: set ep.context_file_path to its path, or"
                " embed them with ep.context_embed_mode=1"
            )
        folder = os.path.dirname(os.path.abspath(compiled)) if compiled else None
        ties = ties_in(graph) if answer.ties is None else answer.ties
        group = WrittenGroup(graph, answer.stored, answer.names, ties, inputs, outputs, declared, self.elsewhere)
        if not self._made:
            group = replace(group, body_entries=self.body_entries.entries)
        data = bytes_of(group, self.build_key, ReferenceWriter(folder, FromModel(path, source, graph.in_files)))
        content: bytes | str = data
        if not self._options.embedded:
            assert folder is not None
            content = f"{Path(compiled).stem}_{len(self._made) + self.written}{nodes.SUFFIX}"
            write_file(os.path.join(folder, content), data)
        attributes = nodes.attributes_of(
            content,
            name=name,
            digest=digest_of(data),
            adapter=self.build_key.adapter,
            model=path,
            embedded=self._options.embedded,
        )
        made_here.record(digest_of(data), graph.name, self.build_key.adapter)
        self._made.append((name, inputs, outputs, attributes))

    def record_in_body(self, name: str, inputs: Sequence[str], outputs: Sequence[str]) -> None:
        """Records the node of a compiled group in a body. A context of the main graph contains the group's Program."""
        self._body_contexts.append((name, inputs, outputs, nodes.placeholder_attributes()))

    def pass_to_ort(self, out: Any) -> None:
        """Passes ONNX Runtime one node for each group that was compiled since the last call."""
        rows, self._body_contexts = self._made or self._body_contexts, []
        if not rows:
            return
        made: list[Any] = []
        try:
            for it in rows:
                made.append(nodes.context_node(self._ort, *it))
        except BaseException:
            for node in made:
                self._ort.api.ReleaseNode(node)
            raise
        finally:
            self.written += len(self._made)
            self._made = []
        out[0 : len(made)] = made


def damage_error(node: ShownNode, error: EntryError) -> ModelError:
    """Returns the error for a context of this node that cannot be read."""
    again = f"compile {model} again" if (model := nodes.original_model_name(node)) else "compile the model again"
    if isinstance(error, FormatError):
        return ModelError(f"the context of {node.name!r} is from another version of this package: {error}; {again}")
    return ModelError(
        f"the context of {node.name!r} is damaged: {error}; {again}, or copy all files of the compiled model"
    )
