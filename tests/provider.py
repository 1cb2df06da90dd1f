"""How tests and tools open a model through stock onnxruntime: which provider library, which device, what ran where.

In: a provider name, `ours` (this package), `official` (the package onnxruntime-ep-webgpu, when installed) or `cpu`.
Out: an `onnxruntime.InferenceSession` and its Placement. Invariant: a session never falls back to another provider
silently; the Placement says which node is where.
"""

from __future__ import annotations

import functools
import importlib
import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
from onnx import helper

from tests import targets

PACKAGES = {"ours": "onnxruntime_ep_wgpu", "official": "onnxruntime_ep_webgpu"}
DEFAULT = os.environ.get("EP_TEST_PROVIDER", "ours")
CPU = "CPUExecutionProvider"


@dataclass(frozen=True)
class Placement:
    """Node names and operators by provider, as onnxruntime recorded them when the session was made."""

    on_gpu: tuple[tuple[str, str], ...]
    on_cpu: tuple[tuple[str, str], ...]

    def cpu_operators(self) -> Counter[str]:
        return Counter(op for _, op in self.on_cpu)


def installed(provider: str) -> bool:
    return provider == "cpu" or importlib.util.find_spec(PACKAGES[provider]) is not None


@functools.cache
def _register(provider: str) -> None:
    package = importlib.import_module(PACKAGES[provider])
    if provider == "ours":
        package.devices()  # not under a second name: the devices would be there twice
    else:
        ort.register_execution_provider_library(f"test-{provider}", package.get_library_path())


@functools.cache
def devices(provider: str, alias: bool = False) -> tuple[ort.OrtEpDevice, ...]:
    """Registers the provider's library in this process and gives its devices, best first.

    `alias`: under our other name, for which onnxruntime keeps its memory pattern.
    """
    _register(provider)
    package = importlib.import_module(PACKAGES[provider])
    name = package.get_ep_names()[1] if alias else package.get_ep_name()
    found = tuple(d for d in ort.get_ep_devices() if d.ep_name == name)
    if not found:
        raise RuntimeError(f"{package.__name__} offers no device for {name}")
    return found


@functools.cache
def saturates() -> bool:
    """Whether the CPU provider adds products of bytes in 16 bits, as on processors without VNNI."""
    kinds = {"x0": onnx.TensorProto.UINT8, "x1": onnx.TensorProto.INT8}
    inputs = [helper.make_tensor_value_info(name, kind, None) for name, kind in kinds.items()]
    result = helper.make_tensor_value_info("y0", onnx.TensorProto.INT32, None)
    graph = helper.make_graph([helper.make_node("MatMulInteger", [*kinds], ["y0"])], "product", inputs, [result])
    built = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    session = ort.InferenceSession(built.SerializeToString(), providers=[CPU])
    feeds = {"x0": np.full((1, 4), 255, np.uint8), "x1": np.full((4, 1), 127, np.int8)}
    return bool(session.run(None, feeds)[0].item() != 4 * 255 * 127)


def exact(settings: ort.SessionOptions) -> ort.SessionOptions:
    """The same, by which the CPU provider's products of bytes are exact. Processors without VNNI add two of them in 16 bits, as the
    largest number where these are too few. Elsewhere the option is left alone: it may make a kernel disappear (QGemm of int8)."""
    if saturates():
        settings.add_session_config_entry("session.x64quantprecision", "1")
    return settings


def open_session(
    model: Path | bytes,
    provider: str = DEFAULT,
    options: Mapping[str, str] | None = None,
    session_options: ort.SessionOptions | None = None,
    alias: bool = False,
) -> ort.InferenceSession:
    """A session on the provider's first device; the CPU provider takes what is left. Quiet about warnings.

    Ours is on the device of the way that was chosen (tests.targets); an option deviceId counts among the devices of it.
    """
    settings = session_options or ort.SessionOptions()
    settings.log_severity_level = max(settings.log_severity_level, 3)
    settings.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    source = model if isinstance(model, bytes) else str(model)
    if provider == "cpu":
        return ort.InferenceSession(source, exact(settings), providers=[CPU])
    given = dict(options or {})
    if provider == "ours" and targets.chosen() != targets.OWN:
        given["deviceId"] = str(targets.context(targets.chosen(), int(given.get("deviceId", 0))).number)
    settings.add_provider_for_devices(list(devices(provider, alias)[:1]), given)
    return ort.InferenceSession(source, settings, enable_fallback=0)


def placement(session: ort.InferenceSession) -> Placement:
    gpu: list[tuple[str, str]] = []
    cpu: list[tuple[str, str]] = []
    for part in session.get_provider_graph_assignment_info():
        (cpu if part.ep_name == CPU else gpu).extend((n.name, n.op_type) for n in part.get_nodes())
    return Placement(tuple(gpu), tuple(cpu))


def reasons(session: ort.InferenceSession) -> list[str]:
    """Why nodes are on the CPU, from the package's own report."""
    import onnxruntime_ep_wgpu

    return [f"{node.op_type} {node.name}: {node.reason}" for node in onnxruntime_ep_wgpu.report(session).on_cpu]


def describe(provider: str) -> str:
    """The adapter and driver that sessions of this provider run on, in words."""
    if provider == "cpu":
        return "CPU"
    device = devices(provider)[0]
    facts = {**device.device.metadata, **device.ep_metadata}
    if "name" in facts:
        return f"{facts['name']}, {facts.get('backend')}, {facts.get('driver')}"
    # The official plugin does not say which adapter it chose.
    return f"{device.ep_name} of {device.ep_vendor} {facts.get('version', '')}".strip()


def counters(context: int = 0) -> dict[str, int]:
    """Counters of the device that `ours` uses first, with the option deviceId=context: pipelines, buffer_bytes..."""
    from onnxruntime_ep_wgpu.device import open_device

    here = targets.context(targets.chosen(), context)
    return dict(open_device(here.adapter, here.number).counters)
