"""What one session runs where: the decision about every graph, the compiled groups, and the account of both.

In: a session's graphs as ONNX Runtime shows them, and later the groups that it cut out. Out: which nodes to group, and a
compiled node per group; for people, the placement of every node. Invariants: deciding needs the graph and the adapter's
limits, and opens no device; equal graphs get equal answers; the device is opened when something is first put on it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..model import ort_graph
from ..options import Options
from . import backend
from .abi import INFO, WARNING, Logger, Ort, text
from .claim import Claim, claim, fingerprint
from .compute import ComputeInfo
from .placement import Placement

if TYPE_CHECKING:
    import onnx_ir as ir

    from ..device import Adapter, Device


@dataclass
class _Graph:
    """What was decided about one graph; `kernels` fills up as its groups are compiled.

    `groups` finds a group by the names of all values that it makes; it gives per value the node's name.
    """

    nodes: list[tuple[str, str, str]]
    claim: Claim
    holders: list[str]
    groups: dict[frozenset[str], dict[str, str]] = field(default_factory=dict)
    kernels: dict[str, tuple[str, ...]] = field(default_factory=dict)


class Planner:
    """The plans of one session, on one adapter, for the provider that is called `name`."""

    def __init__(self, ort: Ort, name: str, adapter: Adapter, options: Options, logger: Logger) -> None:
        self.ort, self.name, self.adapter, self.options, self.logger = ort, name, adapter, options, logger
        self.target = adapter.target()
        self.inputs: tuple[str, ...] = ()
        self.outputs: tuple[str, ...] = ()
        self._claims: dict[str, Claim] = {}
        self._graphs: dict[tuple[str, str], _Graph] = {}
        for key in options.without_effect():
            logger.log(WARNING, f"option {key}={options.given[key]!r} has no effect in this version")

    def device(self) -> Device:
        """The session's device, opened on first use."""
        return backend.open_device(self.adapter, self.options["deviceId"])

    # Deciding

    def decide(self, handle: Any) -> list[list[Any]]:
        """The groups of OrtNodes to compile in an OrtGraph."""
        graph = ort_graph.read(self.ort, handle)
        nodes = [node.meta["ort_node"] for node in graph]
        names = [text(self.ort.get(self.ort.api.Node_GetEpName, node, "const char *")) for node in nodes]
        holders = ["" if name == self.name else name for name in names]
        key = fingerprint(graph) + repr(holders)
        decided = self._claims.get(key)
        if decided is None:
            forced = frozenset(self.options["forceCpuNodeNames"])
            decided = self._claims[key] = claim(graph, self.target, holders, forced)
        parent = self.ort.get(self.ort.api.Graph_GetParentNode, handle, "const OrtNode *")
        within = text(self.ort.get(self.ort.api.Node_GetName, parent, "const char *")) if parent else ""
        if not parent:
            self.inputs = tuple(value.name or "" for value in graph.inputs)
            self.outputs = tuple(value.name or "" for value in graph.outputs)
        self._note(graph, within, decided, holders)
        return [[nodes[place] for place in group] for group in decided.groups]

    def _note(self, graph: ir.Graph, within: str, decided: Claim, holders: list[str]) -> None:
        """Keeps what was decided, for the account and for Compile, and logs it."""
        nodes = list(graph)
        noted = _Graph([(node.name or "", node.op_type, node.domain) for node in nodes], decided, holders)
        for group in decided.groups:
            made = {value.name or "": nodes[place].name or "" for place in group for value in nodes[place].outputs}
            noted.groups[frozenset(made)] = made
        self._graphs[within, graph.name or ""] = noted
        claimed = sum(map(len, decided.groups))
        where = f"the body of {within}" if within else "the graph"
        self.logger.log(INFO, f"{claimed} of {len(nodes)} nodes of {where} claimed, in {len(decided.groups)} groups")
        for (name, op_type, _), reason in zip(noted.nodes, decided.reasons, strict=True):
            if reason is not None:
                self.logger.log(INFO, f"{op_type} {name!r} is not claimed: {reason}")

    # Compiling

    def compile(self, handle: Any, fused: Any) -> ComputeInfo:
        """The compiled node of a group, given as an OrtGraph and the OrtNode that stands for it."""
        api = self.ort.api
        graph = ort_graph.read(self.ort, handle)
        noted = self._name_as_decided(graph)
        inputs = self._names(api.Node_GetNumInputs, api.Node_GetInputs, fused)
        outputs = self._names(api.Node_GetNumOutputs, api.Node_GetOutputs, fused)
        # Before compiling, which may change the graph.
        input_places = [inputs.index(value.name or "") for value in graph.inputs]
        output_places = [outputs.index(value.name or "") for value in graph.outputs]
        name = text(self.ort.get(api.Node_GetName, fused, "const char *"))
        program = backend.compile_graph(graph, graph.opset_imports, self.target, name)
        device = self.device()
        executable = backend.executable(program, device, checked=self.options["validationMode"] == "full")
        if noted is not None:
            noted.kernels.update(backend.kernels(program))
        return ComputeInfo(self.ort, executable, device, input_places, output_places, len(inputs))

    def _names(self, count: Any, fill: Any, node: Any) -> list[str]:
        infos = self.ort.list(count, fill, node, "const OrtValueInfo *")
        return [text(self.ort.get(self.ort.api.GetValueInfoName, it, "const char *")) if it else "" for it in infos]

    def _name_as_decided(self, graph: ir.Graph) -> _Graph | None:
        """Gives the nodes of a group the names they had when it was decided: nodes without one are numbered per graph."""
        made = frozenset(value.name or "" for node in graph for value in node.outputs)
        for noted in self._graphs.values():
            names = noted.groups.get(made)
            if names is not None:
                for node in graph:
                    node.name = names[next((value.name for value in node.outputs if value.name), "")]
                return noted
        return None

    # Telling

    def placements(self) -> list[Placement]:
        """Where every node of the session's graphs is; bodies of control-flow nodes come after the main graph."""
        found = []
        for (within, _), noted in sorted(self._graphs.items(), key=lambda item: bool(item[0][0])):
            partition = {place: number for number, group in enumerate(noted.claim.groups) for place in group}
            for place, (name, op_type, domain) in enumerate(noted.nodes):
                found.append(
                    Placement(
                        name=name,
                        op_type=op_type,
                        domain=domain,
                        within=within,
                        provider=self.name if place in partition else noted.holders[place] or "CPUExecutionProvider",
                        partition=partition.get(place),
                        kernels=noted.kernels.get(name, ()),
                        reason=noted.claim.reasons[place],
                    )
                )
        return found
