"""Shapes that ONNX Runtime infers of values that other providers' nodes make: used while runs bear them out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx.parser
import onnxruntime as ort
import pytest

from onnxruntime_ep_wgpu.compiler.compile import compile_graph
from onnxruntime_ep_wgpu.errors import UnsupportedError

from .loss import device_of, lose

OpenSession = Callable[..., ort.InferenceSession]
HEADS, SIZE = 2, 16
LAYER = "y{0}, k{0}, v{0} = com.microsoft.GroupQueryAttention <num_heads = 2, kv_num_heads = 2> (q, k, v, pk{0}, pv{0}, s, t)"
# What a group reads of a layer's pasts and presents.
READ = {
    "past and present": "a{0} = Tanh (k{0}) b{0} = Tanh (pk{0})",
    "presents": "c{0} = Tanh (k{0}) a{0} = Mul (c{0}, v{0}) b{0} = Tanh (pv{0})",
}


def growing(read: str, past: str, layers: int) -> bytes:
    """Attentions with caches, which a run makes longer: inference gives the present the length of the past."""
    shape = f"float[1,{HEADS},{past},{SIZE}]"
    inputs = "".join(f", {shape} pk{n}, {shape} pv{n}" for n in range(layers))
    outputs = ", ".join(f"float[1,{HEADS},K,{SIZE}] a{n}, {shape} b{n}, float[1,1,32] y{n}" for n in range(layers))
    lines = " ".join(f"[attend{n}] {LAYER.format(n)} {READ[read].format(n)}" for n in range(layers))
    text = (
        '<ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1]> g'
        f" (float[1,1,32] q, float[1,1,32] k, float[1,1,32] v{inputs}, int32[1] s, int32 t) => ({outputs}) {{ {lines} }}"
    )
    return onnx.parser.parse_model(text).SerializeToString()


def feeds(past: int, layers: int) -> dict[str, np.ndarray]:
    dice = np.random.default_rng(past)
    found = {name: dice.standard_normal((1, 1, 32), np.float32) for name in "qkv"}
    for n in range(layers):
        for name in (f"pk{n}", f"pv{n}"):
            found[name] = dice.standard_normal((1, HEADS, past, SIZE), np.float32)
    return found | {"s": np.array([past], np.int32), "t": np.array(past + 1, np.int32)}


@pytest.fixture
def again(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of groups that are compiled once more."""
    found: list[str] = []

    def compile_again(graph: Any, opsets: Any, target: Any, name: str, *rest: Any) -> Any:
        found.append(name)
        return compile_graph(graph, opsets, target, name, *rest)

    monkeypatch.setattr("onnxruntime_ep_wgpu.plugin.specialise.compile_graph", compile_again)
    return found


@pytest.mark.costly
@pytest.mark.parametrize("layers", [1, 3])
@pytest.mark.parametrize("past", ["P", "5"], ids=["named", "static"])
@pytest.mark.parametrize("read", READ)
def test_a_cache_that_grows_on_the_cpu_is_read_at_its_length(
    open_session: OpenSession, again: list[str], read: str, past: str, layers: int
) -> None:
    model = growing(read, past, layers)
    session = open_session(model, {"forceCpuNodeNames": "\n".join(f"attend{n}" for n in range(layers))})
    reference = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
    for length in (5, 6, 9, 6, 5) if past == "P" else (5, 5):
        given = feeds(length, layers)
        for got, want in zip(session.run(None, given), reference.run(None, given), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    # However many presents a group reads and lengths they come to; a group that reads no more than one needs it not even once.
    assert len(again) == len(set(again))


COMPRESSED = (
    '<ir_version: 10, opset_import: ["" : 21]> g (float[N] x, float[M] z, bool[N] k) => (float[K] y) <float[M] a>'
    " { [one] a = Compress <axis = 0> (x, k) c = Concat <axis = 0> (a, z) y = Neg (c) }"
)
"""Its a is said to have the extent of z, and has another one."""


def compressed(count: int) -> dict[str, np.ndarray]:
    """Feeds whose a has `count` elements; z has three."""
    x = np.random.default_rng(count).standard_normal(count + 2).astype(np.float32)
    return {"x": x, "z": np.ones(3, np.float32), "k": np.arange(count + 2) < count}


def test_what_was_learnt_is_known_on_the_next_device(open_session: OpenSession, again: list[str]) -> None:
    model = onnx.parser.parse_model(COMPRESSED).SerializeToString()
    session = open_session(model, {"forceCpuNodeNames": "one", "deviceId": "38"}, log_severity_level=4)

    def run(count: int) -> None:
        given = compressed(count)
        want = -np.concatenate([given["x"][:count], given["z"]])
        np.testing.assert_array_equal(session.run(None, given)[0], want)

    run(5)
    learnt = list(again)
    assert learnt
    for count in (6, 7):
        lose(device_of(38))
        with pytest.raises(Exception, match="DeviceLostError"):
            session.run(None, compressed(count))
        run(count)
    assert again == learnt


def test_what_does_not_compile_without_a_shape_is_tried_once_and_once_per_sizes(
    open_session: OpenSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = []

    def refuse(*_: object) -> None:
        tried.append(1)
        raise UnsupportedError("not without that shape")

    monkeypatch.setattr("onnxruntime_ep_wgpu.plugin.specialise.compile_graph", refuse)
    model = onnx.parser.parse_model(COMPRESSED).SerializeToString()
    session = open_session(model, {"forceCpuNodeNames": "one"}, log_severity_level=4)
    for count in (5, 6, 5):
        with pytest.raises(Exception, match=rf"has ({count}|3) elements along axis 0, the model needs ({count}|3)"):
            session.run(None, compressed(count))
    assert len(tried) == 1 + len({5, 6})


def test_names_that_are_right_are_kept(open_session: OpenSession, again: list[str]) -> None:
    text = (
        '<ir_version: 10, opset_import: ["" : 21]> g (float[N,M] x, float[N,M] z) => (float[N,M] y)'
        " { [one] a = Tanh (x) [other] b = Neg (z) c = Add (a, b) d = Mul (c, x) y = Sub (d, b) }"
    )
    session = open_session(onnx.parser.parse_model(text).SerializeToString(), {"forceCpuNodeNames": "one\nother"})
    for rows in (3, 1, 5):
        x, z = np.random.default_rng(rows).standard_normal((2, rows, 4), np.float32)
        (got,) = session.run(None, {"x": x, "z": z})
        np.testing.assert_allclose(got, (np.tanh(x) - z) * x + z, rtol=1e-5, atol=1e-5)
    assert not again
