"""One session's execution provider, as ONNX Runtime calls it.

In: the callbacks of OrtEp. Out: groups of nodes and compiled nodes, from the session's `Planner`.
Invariant: a session is refused aloud or made as asked. An error in CreateEp or GetKernelRegistry makes Python's
InferenceSession start over on the CPU, one in GetCapability makes ONNX Runtime go on without us. So an error in one of
those is kept and raised where it reaches the user: in Compile, for which a node is claimed, and, in a graph that has no
node to claim, when the session is initialised. ONNX Runtime below 1.27 does not tell us of that; there CreateAllocator,
which every session calls before GetCapability, raises at once (the message is then longer, with ONNX Runtime's own place).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .._ort import ffi
from . import watch
from .abi import ERROR, Exported, Logger, callback, held, message_of, text
from .compute import ComputeInfo
from .planner import Planner

if TYPE_CHECKING:
    from .factory import Factory

_numbers = itertools.count()
# The version of ONNX Runtime that has OnSessionInitializationEnd.
_TELLS_OF_INITIALISATION = 27


class Provider(Exported, struct="OrtEp"):
    """The provider of one session. `planner` is None when that cannot be; `refusal` is why the session must not be."""

    def __init__(self, factory: Factory, logger: Logger, make_planner: Callable[[], Planner]) -> None:
        super().__init__(factory.ort)
        self.factory, self.logger = factory, logger
        self.number = next(_numbers)
        self.planner: Planner | None = None
        self.refusal: BaseException | None = None
        try:
            self.planner = make_planner()
        except BaseException as error:
            self._refuse(error)
        watch.made(self)

    def _refuse(self, error: BaseException) -> None:
        self.refusal = self.refusal or error
        self.logger.log(ERROR, f"the session is refused: {message_of(error)}")

    def _plans(self) -> Planner:
        if self.refusal is not None:
            raise self.refusal
        assert self.planner is not None
        return self.planner

    @callback("GetName")
    def get_name(self) -> Any:
        return self.ort.string(self.factory.name)

    @callback("IsConcurrentRunSupported")
    def is_concurrent_run_supported(self, out: Any) -> None:
        # "No" makes ONNX Runtime hold a lock across our callbacks, which deadlocks with the interpreter's.
        out[0] = True

    @callback("GetKernelRegistry")
    def get_kernel_registry(self, out: Any) -> None:
        out[0] = ffi.NULL
        try:
            out[0] = self.factory.memcpy_kernels().registry
        except BaseException as error:
            self._refuse(error)

    @callback("CreateAllocator")
    def create_allocator(self, info: Any, out: Any) -> None:
        if self.refusal is not None and self.ort.version < _TELLS_OF_INITIALISATION:
            raise self.refusal
        context = self.planner.context if self.planner is not None else None
        out[0] = self.factory.new_allocator(info, context).pointer

    @callback("GetDefaultMemoryDevice", since=27)
    def get_default_memory_device(self, out: Any) -> None:
        # Of the devices that the session was given, the one that it runs on.
        number = self.planner.adapter.index if self.planner is not None else 0
        out[0] = self.ort.ep.MemoryInfo_GetMemoryDevice(self.factory.memory_info(number))

    @callback("Sync", since=25)
    def sync(self) -> None:
        self._plans().device().wait()

    @callback("GetCapability")
    def get_capability(self, graph: Any, info: Any) -> None:
        groups: list[list[Any]] = []
        if self.refusal is None:
            try:
                groups = self._plans().decide(graph)
            except BaseException as error:
                self._refuse(error)
        if self.refusal is not None:
            groups = self._any_node(graph)
        options = ffi.new("OrtNodeFusionOptions *")
        options.ort_version_supported = self.ort.version
        # Constants are on the device after Compile: ONNX Runtime may free its copy.
        options.drop_constant_initializers = True
        for group in groups:
            array = ffi.new("const OrtNode *[]", group)
            self.ort.check(self.ort.ep.EpGraphSupportInfo_AddNodesToFuse(info, array, len(group), options))

    def _any_node(self, graph: Any) -> list[list[Any]]:
        """A group of one node, so that Compile is called; none for a graph in which nothing is free to take."""
        api, ort = self.ort.api, self.ort
        for node in ort.list(api.Graph_GetNumNodes, api.Graph_GetNodes, graph, "const OrtNode *"):
            bodies = ort.get(api.Node_GetNumSubgraphs, node, "size_t")
            if not bodies and not text(ort.get(api.Node_GetEpName, node, "const char *")):
                return [[node]]
        return []

    @callback("Compile")
    def compile(self, graphs: Any, fused: Any, count: int, out: Any, _context_nodes: Any) -> None:
        planner = self._plans()
        if planner.decided and self.ort.version < _TELLS_OF_INITIALISATION:
            planner.complete()
        made: list[ComputeInfo] = []
        try:
            for i in range(count):
                made.append(planner.compile(graphs[i], fused[i]))
        except BaseException:
            for info in made:
                info.release()
            raise
        for i, info in enumerate(made):
            out[i] = info.pointer

    @callback("OnSessionInitializationEnd", since=_TELLS_OF_INITIALISATION)
    def on_session_initialization_end(self) -> None:
        self._plans().complete()

    @callback("ReleaseNodeComputeInfos")
    def release_node_compute_infos(self, infos: Any, count: int) -> None:
        for i in range(count):
            info = held.get(int(ffi.cast("uintptr_t", infos[i])))
            if info is not None:
                info.release()

    def release(self) -> None:
        super().release()
        if self.planner is not None:
            self.planner.close()
        self.factory.let_go(self)
