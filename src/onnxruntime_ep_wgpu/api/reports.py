"""Reports the provider of each node and the reasons: `report()`, and `check()` for sessions that should use this provider.

In: a session on this provider, created by `session()` or by ONNX Runtime. Out: the placement of every node, with the reason if
it runs elsewhere. Invariant: a session is never confused with another one; an ambiguous session raises LookupError."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from ..errors import DeviceError, UnsupportedError, WgpuEpError
from ..names import EP_NAME, NAMES, PROVIDER, pass_this, reserves_name, version
from ..registration import noted
from ..runtime.making import PipelineCount as PipelineCount
from ..runtime.making import PipelineCounts as PipelineCounts
from ..runtime.making import in_words
from ..tabular import html_table, rich_table, text_lines
from .arguments import session_argument

if TYPE_CHECKING:
    from ..device import CacheCounters
    from ..plugin.assign.placement import GroupValues, Placement
    from ..plugin.session import SessionState

# The attribute for a session's state. It is on the session itself, so both have the same lifetime.
_STATE = "_onnxruntime_ep_wgpu_state"

COLUMNS = ("node", "operator", "runs on", "kernel, or reason")
SHOWN = 40
"""Limit of rows in a printed report."""

_WITH_BODIES = ("If", "Loop", "Scan")

# Older versions of ONNX Runtime accept only the names of built-in providers.
NAMES_SINCE = (1, 25)

_Session = TypeVar("_Session")
_Error = TypeVar("_Error", bound=Exception)


def node_rows(nodes: Sequence[Placement]) -> list[tuple[str, ...]]:
    """Returns the nodes as rows for COLUMNS."""
    rows: list[tuple[str, ...]] = []
    around = {node.within for node in nodes if node.on_webgpu}
    for node in nodes:
        has_bodies = node.name in around or node.op_type in _WITH_BODIES
        none = "those of its bodies" if has_bodies else "no kernel: a view, or known before the run"
        kernel = ", ".join(node.kernels) or (none if node.on_webgpu else "")
        kernel += "".join(f"; not {it}" for it in node.declined)
        place = f"WebGPU {node.partition}" if node.on_webgpu else node.provider
        within = f"{node.within}/" if node.within else ""
        rows.append((within + node.name, node.op_type, place, node.reason or kernel))
    return rows


@dataclass(frozen=True, repr=False)
class Report:
    """The placement of a session's nodes; prints as a table.

    - `device`: the adapter's name.
    - `nodes`: the provider, the kernels and the reason of each node.
    - `library`: the WebGPU library, its version, and the reason for its choice.
    - `values`: the groups that read elements of their inputs on the host.
    - `caches`: counters of the device's buffer caches by kind, for all sessions on that device.
    - `pipelines`: the numbers of pipelines that this session created.
    - `creation`: milliseconds of each part of the session's creation, and of the whole, "total". The parts are "reading",
      "claiming", "compiling", "device", "weights" and "pipelines"; `Progress` explains them. They are measured on the creating
      thread. Other threads compile pipelines meanwhile, and the creating thread waits for the rest at the end.
    """

    device: str
    nodes: tuple[Placement, ...]
    caches: Mapping[str, CacheCounters]
    library: str = ""
    values: tuple[GroupValues, ...] = ()
    pipelines: PipelineCounts = field(default_factory=PipelineCounts)
    creation: Mapping[str, float] = field(default_factory=dict)

    @property
    def on_cpu(self) -> tuple[Placement, ...]:
        """The nodes on other providers, each with its reason."""
        return tuple(node for node in self.nodes if not node.on_webgpu)

    @property
    def partitions(self) -> int:
        """The number of compiled groups, including those in bodies of control-flow nodes."""
        return len({(node.within, node.partition) for node in self.nodes if node.on_webgpu})

    @property
    def kernels(self) -> int:
        """The number of dispatches of a run, as far as the nodes' kernels are distinct."""
        return len({(node.within, node.partition, kernel) for node in self.nodes for kernel in node.kernels})

    def made(self) -> str:
        """Returns the creation times in words: "359 ms: reading 4, claiming 64, ..."; "" if unknown."""
        return in_words(self.creation) if self.creation else ""

    def _title(self) -> str:
        ours = f"{len(self.nodes) - len(self.on_cpu)} of {_count(len(self.nodes), 'node')}"
        where = f"{_count(self.kernels, 'kernel')} of {_count(self.partitions, 'group')}"
        return f"{self.device}: {ours} in {where}, {len(self.on_cpu)} on the CPU"

    def _making(self) -> list[str]:
        return [f"made in {self.made()}", str(self.pipelines)] if self.creation else []

    def _rows(self) -> list[tuple[str, ...]]:
        """Returns the rows of the first SHOWN nodes, those on the CPU first."""
        return node_rows(sorted(self.nodes, key=lambda node: node.on_webgpu)[:SHOWN])

    def _rest(self) -> str:
        more = len(self.nodes) - SHOWN
        return f"... and {more} more: report(session).nodes has all" if more > 0 else ""

    def __str__(self) -> str:
        title = [
            self._title(),
            f"through {self.library}" if self.library else "",
            *self._making(),
            *map(str, self.values),
        ]
        return "\n".join([*filter(None, title), *text_lines(COLUMNS, self._rows()), *filter(None, [self._rest()])])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """Returns the report as an HTML table, for notebooks."""
        return html_table(
            COLUMNS, self._rows(), self._title(), [*self._making(), *map(str, self.values), self._rest(), self.library]
        )

    def __rich__(self) -> Any:
        table = rich_table(COLUMNS, self._rows(), self._title())
        table.caption = (
            "\n".join(filter(None, [*self._making(), *map(str, self.values), self._rest(), self.library])) or None
        )
        return table


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def report(session: Any) -> Report:
    """Returns the provider and the reasons for each node of a session on this provider.

    The session may come from `session()` or from ONNX Runtime itself. Raises LookupError if the session is not on this
    provider, or cannot be distinguished from another one."""
    state = state_of(session)
    nodes = tuple(state.assignment.placements())
    # A device opens on first use, so a session without nodes here has none.
    used = any(node.on_webgpu for node in nodes)
    caches = state.device().caches.counters() if used else {}
    return Report(
        state.adapter.name,
        nodes,
        caches,
        state.library_text,
        tuple(state.assignment.values()),
        state.making.pipelines,
        state.making.milliseconds,
    )


def check(session: _Session) -> _Session:
    """Returns the session if it uses this provider: `session = check(InferenceSession(path, providers=[PROVIDER]))`.

    Otherwise it raises WgpuEpError with the reason:

    - There is no adapter (DeviceError).
    - No node can run here (UnsupportedError).
    - The library is not registered.
    - ONNX Runtime is too old for names of plugin providers.
    - The provider's name did not reach ONNX Runtime.

    Some nodes on other providers are no error; `report()` lists them.
    """
    if not _provider_names(session):
        raise _why_elsewhere(session, WgpuEpError)
    nothing = state_of(session).assignment.describe_none_here()
    if nothing:
        raise UnsupportedError(nothing)
    return session


def remember(session: Any, state: SessionState) -> None:
    """Attaches the state to a session that `session()` created."""
    setattr(session, _STATE, state)


def state_of(session: Any) -> SessionState:
    """Returns the state of a session on this provider. Raises LookupError if there is none, or if it is ambiguous."""
    return getattr(session, _STATE, None) or _match(session_argument(session))


def _provider_names(session: Any) -> set[str]:
    return set(session_argument(session).get_providers()) & set(NAMES)


def _why_elsewhere(session: Any, kind: type[_Error]) -> _Error | DeviceError:
    """Returns an error with the first applicable reason why a session is not on this provider.

    It is a DeviceError if the machine has no adapter, else an error of type `kind`."""
    import onnxruntime as ort

    from ..device import adapters_problem
    from .devices import registered

    runs = f"the session runs on {', '.join(session.get_providers())} and not on this provider"
    problem = adapters_problem()
    if problem:
        return DeviceError(f"{runs}: {problem}")
    if not registered():
        return kind(f"{runs}, which is not registered: call onnxruntime_ep_wgpu.register() before the session is made")
    if version(ort.__version__) < NAMES_SINCE:
        return kind(
            f"{runs}: onnxruntime {ort.__version__} does not support the names of providers in libraries; install"
            f" {'.'.join(map(str, NAMES_SINCE))} or later, pass devices (SessionOptions.add_provider_for_devices), or make"
            " it with onnxruntime_ep_wgpu.session()"
        )
    if reserves_name(ort.__version__) and not noted.knows_the_name:
        return kind(f"{runs}; {pass_this(ort.__version__)}")
    reserved = (
        f", such as {EP_NAME!r}, which this onnxruntime reserves for its own" if reserves_name(ort.__version__) else ""
    )
    return kind(
        f"{runs}: {PROVIDER!r} is registered, but providers=[{PROVIDER!r}] did not reach InferenceSession: another name was"
        f" passed{reserved}, it was made before the provider was registered, or the library that made it chooses providers"
        " itself (give it a session made with onnxruntime_ep_wgpu.session(), if it takes one)"
    )


def _match(session: Any) -> SessionState:
    """Returns the state of a session from ONNX Runtime: the only live one with the same inputs and outputs."""
    from ..plugin.watch import live

    ours = _provider_names(session)
    if not ours:
        raise _why_elsewhere(session, LookupError)
    inputs = {value.name for value in session.get_inputs()}
    outputs = [value.name for value in session.get_outputs()]
    states: list[SessionState] = [
        provider.state for provider in live() if provider.state is not None and provider.state.name in ours
    ]
    fitting = [it for it in states if inputs <= set(it.deciding.inputs) and outputs == list(it.deciding.outputs)]
    if not fitting:
        raise LookupError("no live session of this package has these inputs and outputs")
    reports = [(it.adapter.name, it.assignment.placements()) for it in fitting]
    if any(it != reports[0] for it in reports):
        raise LookupError("several live sessions have these inputs and outputs: make the session with session()")
    return fitting[0]
