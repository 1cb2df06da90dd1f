"""One session's execution provider, as ONNX Runtime calls it.

In: the callbacks of OrtEp. Out: groups of nodes and compiled nodes, from the session's `SessionState`.

Invariant: a session is made as requested, or the user gets an error. An error in CreateEp or GetKernelRegistry makes Python's
InferenceSession start again on the CPU. An error in GetCapability makes ONNX Runtime continue without this provider. So such an
error is kept, and raised where it reaches the user: in Compile, for which a node is claimed. If a graph has no node to claim,
it is raised when the session is initialised. ONNX Runtime below 1.27 does not notify the provider of that. There
CreateAllocator, which every session calls before GetCapability, raises the error at once. The message is then longer, with ONNX
Runtime's own place.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from .._ort import ffi
from ..device import release_dead
from ..program.target import TIMESTAMPS
from . import collector, watch
from .abi import ERROR, INFO, WARNING, Logger, message_of, text
from .callbacks import CallbackTable, callback, held, release_frames
from .captures import CaptureCallbacks, capture_slots
from .kernels.control import ControlKernels
from .kernels.memcpy import MemcpyKernels
from .node import ComputeInfo
from .profiler import Profiler
from .session import SessionState

if TYPE_CHECKING:
    from ..device import Context
    from .abi import Ort
    from .allocator import Allocator

_numbers = itertools.count()
# The first version of ONNX Runtime with OnSessionInitializationEnd.
_TELLS_OF_INITIALISATION = 27
_RUN_START = "OnRunStart"
_KNOWN_DOMAINS = frozenset({"", "ai.onnx", "com.microsoft"})


class ProviderFactory(Protocol):
    """The factory that makes providers. It outlives them."""

    ort: Ort
    name: str

    def new_allocator(self, info: Any, context: Context | None) -> Allocator: ...

    def memory_info(self, number: int) -> Any: ...

    def remove_user(self, user: CallbackTable) -> None: ...


class Provider(CaptureCallbacks, CallbackTable, struct="OrtEp"):
    """The provider of one session. `state` is None if the session is refused.

    `make_state` takes a function that returns how many kernels ONNX Runtime made to copy tensors of the session.
    """

    def __init__(
        self, factory: ProviderFactory, logger: Logger, make_state: Callable[[Callable[[], int]], SessionState]
    ) -> None:
        super().__init__(factory.ort)
        self.factory, self.logger = factory, logger
        self.number = next(_numbers)
        self.state: SessionState | None = None
        self._refusal: Callable[[], BaseException | None] = lambda: None
        self._warned = False
        self._kernels: MemcpyKernels | None = None
        self._control: ControlKernels | None = None
        try:
            self.state = make_state(self._copies)
        except BaseException as error:
            self._refuse(error)
        if self.captures is None:
            # Before that version, the first run is the first notice that the session is complete.
            needed = {_RUN_START} if self.ort.version < _TELLS_OF_INITIALISATION else set()
            self.clear_slots(*(slot for slot in capture_slots() if slot not in needed))
        watch.add_provider(self)

    def _copies(self) -> int:
        return 0 if self._kernels is None else self._kernels.made

    def _refuse(self, error: BaseException) -> None:
        # If `session()` makes the session, it raises the error. If a compiled model of the cache cannot be used, it opens the
        # model itself, which only takes time.
        severity = ERROR if watch.making() is None else INFO
        self.logger.log(severity, f"the session is rejected: {message_of(error)}")
        release_frames(error)
        if self.refusal is None:
            self._refusal = watch.keep_error(error)

    @property
    def refusal(self) -> BaseException | None:
        """The error that refuses the session; None without one, or if it was raised to the caller that makes the session."""
        return self._refusal()

    def _required_state(self) -> SessionState:
        if self.refusal is not None:
            raise self.refusal
        assert self.state is not None
        return self.state

    @callback("GetName")
    def get_name(self) -> Any:
        return self.ort.string(self.factory.name)

    @callback("IsConcurrentRunSupported")
    def is_concurrent_run_supported(self, out: Any) -> None:
        # With False, ONNX Runtime holds a lock during our callbacks, which causes a deadlock with the interpreter's lock.
        out[0] = True

    @callback("GetKernelRegistry")
    def get_kernel_registry(self, out: Any) -> None:
        out[0] = ffi.NULL
        try:
            # One registry per session, because it identifies the session for which a kernel is made.
            if self._kernels is None:
                kernels = MemcpyKernels(self.ort, self.factory.name)
                self._control = ControlKernels(self.ort, self.factory.name, kernels.registry)
                self._kernels = kernels
            out[0] = self._kernels.registry
        except BaseException as error:
            self._refuse(error)

    @callback("CreateAllocator")
    def create_allocator(self, info: Any, out: Any) -> None:
        if self.refusal is not None and self.ort.version < _TELLS_OF_INITIALISATION:
            raise self.refusal
        context = self.state.context if self.state is not None else None
        self.factory.new_allocator(info, context).pass_to_ort(out)

    @callback("GetDefaultMemoryDevice", since=27)
    def get_default_memory_device(self, out: Any) -> None:
        # The device where the session runs, among those that it was given.
        number = self.state.adapter.index if self.state is not None else 0
        out[0] = self.ort.ep.MemoryInfo_GetMemoryDevice(self.factory.memory_info(number))

    @callback("Sync", since=25, device=True)
    def sync(self) -> None:
        self._required_state().device().wait()

    @callback("CreateProfiler", since=25)
    def create_profiler(self, out: Any) -> None:
        Profiler(self.ort, self._warn_of_timestamps, self.logger).pass_to_ort(out)

    def _warn_of_timestamps(self) -> None:
        """Warns once if profiles of this session lack GPU times."""
        if self.state is not None and not self._warned:
            self._warned = True
            target = self.state.target
            if TIMESTAMPS not in target.features:
                line = f"the adapter {target.name} has no timestamps (feature {TIMESTAMPS}): no GPU times in profiles"
                self.logger.log(WARNING, line)

    @callback("GetCapability")
    def get_capability(self, graph: Any, info: Any) -> None:
        groups: list[list[Any]] = []
        kernels: list[Any] = []
        if self.refusal is None:
            try:
                with collector.paused():
                    groups, kernels = self._required_state().decide(graph, partial(self._has_kernel, info))
            except BaseException as error:
                self._refuse(error)
        if self.refusal is not None:
            groups, kernels = self._any_node(graph), []
        options = ffi.new("OrtNodeFusionOptions *")
        options.ort_version_supported = self.ort.version
        for group in groups:
            # Constants are on the device after Compile, so ONNX Runtime may free its copy. But a context takes them as inputs,
            # and ONNX Runtime writes those of bodies into a compiled model.
            options.drop_constant_initializers = self.state is None or self.state.deciding.drops_constants(group)
            array = ffi.new("const OrtNode *[]", group)
            self.ort.check_status(self.ort.ep.EpGraphSupportInfo_AddNodesToFuse(info, array, len(group), options))
        for node in kernels:
            self.ort.check_status(self.ort.ep.EpGraphSupportInfo_AddSingleNode(info, node))

    def _has_kernel(self, info: Any, node: Any) -> bool:
        """Returns whether the registry has a kernel for a node with its types."""
        found = ffi.new("const OrtKernelDef **")
        self.ort.check_status(self.ort.ep.EpGraphSupportInfo_LookUpKernel(info, node, found))
        return bool(found[0])

    def _any_node(self, graph: Any) -> list[list[Any]]:
        """Returns a group of one node, so that ONNX Runtime calls Compile; no group if the graph has no free node."""
        api, ort = self.ort.api, self.ort
        for node in ort.list(api.Graph_GetNumNodes, api.Graph_GetNodes, graph, "const OrtNode *"):
            bodies = ort.get(api.Node_GetNumSubgraphs, node, "size_t")
            # Before it is inlined, a function of the model is one node. The process crashes if it is fused.
            known = text(ort.get(api.Node_GetDomain, node, "const char *")) in _KNOWN_DOMAINS
            if known and not bodies and not text(ort.get(api.Node_GetEpName, node, "const char *")):
                return [[node]]
        return []

    @callback("Compile", device=True)
    def compile(self, graphs: Any, fused: Any, count: int, out: Any, context_nodes: Any) -> None:
        state = self._required_state()
        if state.deciding.decided and self.ort.version < _TELLS_OF_INITIALISATION:
            state.deciding.complete()
            if self.captures is None and not state.copy_guard.needed:
                self.clear_slots(_RUN_START)
        state.check_captures()
        with collector.paused():
            made = [state.compile(graphs[i], fused[i]) for i in range(count)]
            state.settle()
        if state.deciding.decided:
            state.compiled()
            if self.ort.version < _TELLS_OF_INITIALISATION:
                state.making.end()
        state.ep_contexts.pass_to_ort(context_nodes)
        ComputeInfo.pass_all_to_ort(made, out)

    @callback("GetCompiledModelCompatibilityInfo")
    def get_compiled_model_compatibility_info(self, _graph: Any) -> Any:
        """Returns the adapter, options and version for which a model is being compiled; "" if the session compiles none."""
        contexts = None if self.state is None else self.state.ep_contexts
        return self.ort.string(contexts.build_key.text() if contexts is not None and contexts.written else "")

    @callback("OnSessionInitializationEnd", since=_TELLS_OF_INITIALISATION)
    def on_session_initialization_end(self) -> None:
        state = self._required_state()
        state.deciding.complete()
        state.copy_guard.check_copies()
        state.initialised()

    @callback("OnRunStart")
    def on_run_start(self, options: Any) -> None:
        if self.ort.version < _TELLS_OF_INITIALISATION:
            self._required_state().copy_guard.check_copies()
        super().on_run_start(options)

    @callback("ReleaseNodeComputeInfos", device=True)
    def release_node_compute_infos(self, infos: Any, count: int) -> None:
        for i in range(count):
            info = held.get(int(ffi.cast("uintptr_t", infos[i])))
            if info is not None:
                info.release()

    def release(self) -> None:
        # This order can be started again after an interrupt.
        if self.state is not None:
            self.state.close()
        # The state refers to this object, to count the session's kernels. This breaks the cycle, so the state ends now and not
        # at the next garbage collection. Until then it would count as a live session.
        self.state = None
        watch.remove_provider(self)
        if self._kernels is not None:
            self._kernels.close()
        self.factory.remove_user(self)
        super().release()
        release_dead()
