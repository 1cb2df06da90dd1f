"""One session's execution provider: which nodes it takes, and what they become.

In: a session's graphs, then the groups that ONNX Runtime cut out of them. Out: compiled nodes, and for people the
placement of every node. Invariants: GetCapability answers from the graph and the adapter's limits alone, opens no device
and answers equal graphs equally; the device is opened when something is first put on it.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .._ort import ffi
from ..model import ort_graph
from ..options import Options
from . import backend
from .abi import ERROR, INFO, WARNING, Exported, Logger, callback, held, message_of, text
from .claim import Claim, claim, fingerprint
from .compute import ComputeInfo
from .placement import Placement

if TYPE_CHECKING:
    import onnx_ir as ir

    from ..device import Adapter, Device
    from .factory import Factory

_numbers = itertools.count()


@dataclass
class _Graph:
    """What was decided about one graph of the session; `kernels` fills up as its groups are compiled."""

    nodes: list[tuple[str, str, str]]
    claim: Claim
    holders: list[str]
    groups: dict[frozenset[str], tuple[int, dict[str, str]]] = field(default_factory=dict)
    kernels: dict[str, tuple[str, ...]] = field(default_factory=dict)


class Provider(Exported, struct="OrtEp"):
    """The provider of one session, on one adapter."""

    def __init__(self, factory: Factory, adapter: Adapter, options: Options, logger: Logger) -> None:
        super().__init__(factory.ort)
        self.factory, self.adapter, self.options, self.logger = factory, adapter, options, logger
        self.number = next(_numbers)
        self.target = adapter.target()
        self.graph_names: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
        self._claims: dict[str, Claim] = {}
        self._graphs: dict[tuple[str, str], _Graph] = {}

    def device(self) -> Device:
        """The session's device, opened on first use."""
        return backend.open_device(self.adapter, self.options["deviceId"])

    @callback("GetName")
    def get_name(self) -> Any:
        return self.ort.string(self.factory.name)

    @callback("IsConcurrentRunSupported")
    def is_concurrent_run_supported(self, out: Any) -> None:
        # "No" makes ONNX Runtime hold a lock across our callbacks, which deadlocks with the interpreter's.
        out[0] = True

    @callback("GetKernelRegistry")
    def get_kernel_registry(self, out: Any) -> None:
        out[0] = self.factory.memcpy_kernels().registry

    @callback("CreateAllocator")
    def create_allocator(self, _info: Any, out: Any) -> None:
        out[0] = self.factory.new_allocator(self.device).pointer

    @callback("Sync", since=25)
    def sync(self) -> None:
        self.device().wait()

    @callback("GetCapability")
    def get_capability(self, graph: Any, info: Any) -> None:
        try:
            self._claim(graph, info)
        except BaseException as error:
            # ONNX Runtime drops the status and goes on without us.
            self.logger.log(ERROR, f"no node is claimed: {message_of(error)}")
            raise

    def _claim(self, handle: Any, info: Any) -> None:
        graph = ort_graph.read(self.ort, handle)
        nodes = list(graph)
        ours = self.factory.name
        holders = [
            text(self.ort.get(self.ort.api.Node_GetEpName, node.meta["ort_node"], "const char *")) for node in nodes
        ]
        holders = ["" if name == ours else name for name in holders]
        key = fingerprint(graph) + repr(holders)
        decided = self._claims.get(key)
        if decided is None:
            forced = frozenset(self.options["forceCpuNodeNames"])
            decided = self._claims[key] = claim(graph, self.target, holders, forced)
        self._note(handle, graph, decided, holders)
        options = ffi.new("OrtNodeFusionOptions *")
        options.ort_version_supported = self.ort.version
        # Constants are on the device after Compile: ONNX Runtime may free its copy.
        options.drop_constant_initializers = True
        for group in decided.groups:
            array = ffi.new("const OrtNode *[]", [nodes[place].meta["ort_node"] for place in group])
            self.ort.check(self.ort.ep.EpGraphSupportInfo_AddNodesToFuse(info, array, len(group), options))

    def _note(self, handle: Any, graph: ir.Graph, decided: Claim, holders: list[str]) -> None:
        """Keeps what was decided for the report, and logs it the first time."""
        nodes = list(graph)
        parent = self.ort.get(self.ort.api.Graph_GetParentNode, handle, "const OrtNode *")
        within = text(self.ort.get(self.ort.api.Node_GetName, parent, "const char *")) if parent else ""
        if not parent:
            self.graph_names = (
                tuple(value.name or "" for value in graph.inputs),
                tuple(value.name or "" for value in graph.outputs),
            )
        noted = _Graph([(node.name or "", node.op_type, node.domain) for node in nodes], decided, holders)
        for number, group in enumerate(decided.groups):
            made = {value.name or "": nodes[place].name or "" for place in group for value in nodes[place].outputs}
            noted.groups[frozenset(made)] = (number, made)
        self._graphs[within, graph.name or ""] = noted
        self._log(within, noted)

    def _log(self, within: str, noted: _Graph) -> None:
        claimed = sum(map(len, noted.claim.groups))
        where = f"the body of {within}" if within else "the graph"
        self.logger.log(
            INFO, f"{claimed} of {len(noted.nodes)} nodes of {where} claimed, in {len(noted.claim.groups)} groups"
        )
        for (name, op_type, _), reason in zip(noted.nodes, noted.claim.reasons, strict=True):
            if reason is not None:
                self.logger.log(INFO, f"{op_type} {name!r} is not claimed: {reason}")

    @callback("Compile")
    def compile(self, graphs: Any, fused: Any, count: int, out: Any, _context_nodes: Any) -> None:
        made: list[ComputeInfo] = []
        try:
            for i in range(count):
                made.append(self._compile(graphs[i], fused[i]))
        except BaseException:
            for info in made:
                info.release()
            raise
        for i, info in enumerate(made):
            out[i] = info.pointer

    def _compile(self, handle: Any, fused: Any) -> ComputeInfo:
        graph = ort_graph.read(self.ort, handle)
        api, names = self.ort.api, self._names
        inputs = names(api.Node_GetNumInputs, api.Node_GetInputs, fused)
        outputs = names(api.Node_GetNumOutputs, api.Node_GetOutputs, fused)
        noted = self._name_like_claimed(graph)
        name = text(self.ort.get(api.Node_GetName, fused, "const char *"))
        program = backend.compile_graph(graph, graph.opset_imports, self.target, name)
        device = self.device()
        executable = backend.executable(program, device, self.options["validationMode"] == "full")
        if noted is not None:
            noted.kernels.update(backend.kernels(program))
        return ComputeInfo(
            self.ort,
            executable,
            device,
            [inputs.index(value.name or "") for value in graph.inputs],
            [outputs.index(value.name or "") for value in graph.outputs],
            len(inputs),
        )

    def _names(self, count: Any, fill: Any, node: Any) -> list[str]:
        infos = self.ort.list(count, fill, node, "const OrtValueInfo *")
        return [text(self.ort.get(self.ort.api.GetValueInfoName, it, "const char *")) if it else "" for it in infos]

    def _name_like_claimed(self, graph: ir.Graph) -> _Graph | None:
        """Gives the nodes of a group the names they were claimed under: nodes without one are numbered per graph."""
        made = frozenset(value.name or "" for node in graph for value in node.outputs)
        for noted in self._graphs.values():
            if made in noted.groups:
                _, names = noted.groups[made]
                for node in graph:
                    node.name = names[next((value.name for value in node.outputs if value.name), "")]
                return noted
        return None

    @callback("ReleaseNodeComputeInfos")
    def release_node_compute_infos(self, infos: Any, count: int) -> None:
        for i in range(count):
            info = held.get(int(ffi.cast("uintptr_t", infos[i])))
            if info is not None:
                info.release()

    def placements(self) -> list[Placement]:
        """Where every node of the session's graphs went; bodies of control-flow nodes after the main graph."""
        found = []
        for (within, _), noted in sorted(self._graphs.items(), key=lambda item: bool(item[0][0])):
            partition = {place: number for number, group in enumerate(noted.claim.groups) for place in group}
            for place, (name, op_type, domain) in enumerate(noted.nodes):
                ours = place in partition
                found.append(
                    Placement(
                        name=name,
                        op_type=op_type,
                        domain=domain,
                        within=within,
                        provider=self.factory.name if ours else noted.holders[place] or "CPUExecutionProvider",
                        partition=partition.get(place),
                        kernels=noted.kernels.get(name, ()),
                        reason=noted.claim.reasons[place],
                    )
                )
        return found

    def warn_about_options(self) -> None:
        """Logs the options that were set and do nothing."""
        for key in self.options.without_effect():
            self.logger.log(WARNING, f"option {key}={self.options.given[key]!r} has no effect in this version")

    def release(self) -> None:
        super().release()
        self.factory.let_go(self)


