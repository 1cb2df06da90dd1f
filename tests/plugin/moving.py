"""Random programs whose tensors are used by sessions on several devices: `python -m tests.plugin.moving SEED COUNT`.

In: seeds, and the adapters that the Vulkan loader shows, through each library that can use them. Out: a line for what is wrong.
Every value is compared with numpy; nothing is on a device at the end.
"""

from __future__ import annotations

import contextlib
import random
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import onnxruntime as ort
from onnx import helper

import onnxruntime_ep_wgpu as webgpu_ep
from onnxruntime_ep_wgpu.api.reports import state_of
from onnxruntime_ep_wgpu.device import adapters
from onnxruntime_ep_wgpu.device.contexts import contexts
from onnxruntime_ep_wgpu.plugin.memory import space as memory
from tests.programs import in_threads, run_programs

from .loss import lose
from .models import model, node

Array = np.ndarray[Any, np.dtype[Any]]
TYPES: list[Any] = [np.float32, np.int32, np.int64, np.float16, np.uint8]
SHAPES = [(5, 8), (1, 1), (0, 4), (3, 7), (1, 3), (300, 20), (40, 2100), (2, 33)]
MOST = 14  # values, and half as many sessions
LOSSES = 30  # errors that one lost device may be: its tensors, and what meets it first
STORAGE = 140  # usage of a buffer of wgpu's


def _same(x: Array, **_: Array) -> Array:
    return x + x.dtype.type(1)


def _sum(x: Array, w: Array) -> Array:
    return x + w


def _turned(x: Array) -> Array:
    return np.ascontiguousarray(x.T)


def _updated(x: Array, at: Array, row: Array) -> Array:
    y = x.copy()
    y[at[:, 0]] = row
    return y


def _shaped(x: Array, shape: Array) -> Array:
    return (x + x.dtype.type(1)).reshape(shape)


MODELS: dict[Callable[..., Array], tuple[list[Any], list[tuple[str, list[Any]]], list[Any]]] = {
    _same: ([node("Add", ["x", "one"], ["y"], "add")], [("x", ["N", "M"])], ["N", "M"]),
    _sum: ([node("Add", ["x", "w"], ["y"], "add")], [("x", ["N", "M"]), ("w", ["N", "M"])], ["N", "M"]),
    _turned: ([node("Transpose", ["x"], ["y"], "turn", perm=[1, 0])], [("x", ["N", "M"])], ["M", "N"]),
    _updated: (
        [node("ScatterND", ["x", "at", "row"], ["y"], "update")],
        [("x", ["N", "M"]), ("at", [1, 1]), ("row", [1, "M"])],
        ["N", "M"],
    ),
    _shaped: (
        [node("Add", ["x", "one"], ["more"], "add"), node("Reshape", ["more", "shape"], ["y"], "reshape", allowzero=1)],
        [("x", ["N", "M"]), ("shape", [2])],
        ["A", "B"],
    ),
}
"""What a session calculates: its nodes, inputs and the shape of its result. An input of integers alone is of 64 bits."""
IN_PLACE = (_same, _sum, _updated)


class Value:
    """A tensor, what it holds, and which adapter's memory it is for ONNX Runtime."""

    def __init__(self, value: Any, array: Array, adapter: int) -> None:
        self.value, self.array, self.adapter = value, array, adapter

    def put(self, array: Array) -> None:
        self.value.update_inplace(array)
        self.array = array

    def check(self) -> None:
        got = self.value.numpy()
        assert got.dtype == self.array.dtype and np.array_equal(got, self.array), f"{got} for {self.array}"


class Session:
    """A session on one of the devices."""

    def __init__(self, r: random.Random, places: list[tuple[int, dict[str, Any]]]) -> None:
        self.reference = r.choice(list(MODELS))
        self.dtype = np.dtype(r.choice(TYPES[:4] if self.reference is _updated else TYPES))
        self.adapter, options = r.choice(places)
        self.captures = self.reference is not _shaped and r.random() < 0.3
        nodes, inputs, result = MODELS[self.reference]
        kind = helper.np_dtype_to_tensor_dtype(self.dtype)
        given = [(name, 7 if name in ("at", "shape") else kind, shape) for name, shape in inputs]
        built = model(nodes, given, [("y", kind, result)], [("one", np.array(1, self.dtype))])
        more = {"enableGraphCapture": 1} if self.captures else {}
        self.made = webgpu_ep.session(built, device=self.adapter, **options, **more)
        self.graphs = 0
        self._given = f"{self.reference.__name__} of {self.dtype} on {self.adapter} {options | more}"

    def options(self, r: random.Random) -> ort.RunOptions | None:
        if not self.captures:
            return None
        self.graphs += 1
        options = ort.RunOptions()
        options.add_run_config_entry("gpu_graph_id", str(r.choice([-1, self.graphs])))
        return options

    def __str__(self) -> str:
        return self._given


class Program:
    """What one seed does."""

    def __init__(self, seed: int) -> None:
        self.r, self.places = random.Random(seed), places()
        self.sessions: list[Session] = []
        self.values: list[Value] = []
        self.lost = 0  # errors that may come of lost devices

    def run(self, steps: int = 60) -> None:
        for _ in range(steps):
            self.step(self.r, self.values)
            if not self.lost and self.r.random() < 0.03:
                self.on_threads()
        for it in self.values:
            with self.losses(self.values):
                it.check()

    def step(self, r: random.Random, values: list[Value], alone: bool = True) -> None:
        steps: list[tuple[Callable[..., Any], float]] = [
            (self.run_session, 12), (self.new, 3), (self.put, 2), (self.copy, 2), (self.check, 3), (self.drop, 1.5),
        ]  # fmt: skip
        if alone:
            steps += [(self.make_session, 2), (self.drop_session, 0.7), (self.lend, 0.4), (self.adopt, 0.5)]
            steps += [(self.lose, 0.2)]
        chosen = r.choices([it for it, _ in steps], [often for _, often in steps])[0]
        with self.losses(values), contextlib.suppress(NothingThere):
            chosen(r, values)

    @contextlib.contextmanager
    def losses(self, values: list[Value]) -> Any:
        """Where a device was lost, an error may say so; then all values are made again."""
        try:
            yield
        except Exception as error:
            if not self.lost or "lost" not in str(error):
                raise
            while values and self.lost:
                self.lost -= 1
                with contextlib.suppress(Exception):
                    values[-1].put(values[-1].array)
                    values[-1].check()
                values.pop()

    def new(self, r: random.Random, values: list[Value], shape: Any = None, dtype: Any = None) -> Value:
        adapter, shape = r.randrange(len(adapters())), r.choice(SHAPES) if shape is None else shape
        array = np.random.default_rng(r.randrange(1 << 30)).integers(0, 50, shape).astype(dtype or r.choice(TYPES))
        if r.random() < 0.5:
            it = Value(ort.OrtValue.ortvalue_from_numpy(array, "webgpu", adapter), array, adapter)
        else:
            made = ort.OrtValue.ortvalue_from_shape_and_type([*array.shape], array.dtype.type, "webgpu", adapter)
            it = Value(made, array, adapter)
            it.put(array)
        values.append(it)
        if len(values) > MOST:
            del values[r.randrange(MOST)]
        return it

    def some(self, r: random.Random, values: list[Value], dtype: Any, shape: Any = None) -> Value:
        fit = [it for it in values if it.array.dtype == dtype and it.array.ndim == 2]
        fit = [it for it in fit if shape is None or it.array.shape == tuple(shape)]
        return r.choice(fit) if fit and r.random() < 0.85 else self.new(r, values, shape, np.dtype(dtype))

    def inputs(self, r: random.Random, session: Session, values: list[Value]) -> dict[str, Value]:
        x = self.some(r, values, session.dtype)
        if session.reference is _sum:
            return {"x": x, "w": self.some(r, values, session.dtype, x.array.shape)}
        if session.reference is _shaped:
            size = x.array.size
            shape = r.choice([(size, 1), (1, size), x.array.shape[::-1]]) if size else (0, 3)
            return {"x": x, "shape": self.of(r, np.array(shape, np.int64))}
        if session.reference is _updated:
            rows, columns = x.array.shape
            if not rows:
                raise NothingThere
            at = self.of(r, np.array([[r.randrange(rows)]], np.int64))
            return {"x": x, "at": at, "row": self.of(r, np.full((1, columns), r.randrange(50), session.dtype))}
        return {"x": x}

    def of(self, r: random.Random, array: Array) -> Value:
        adapter = r.randrange(len(adapters()))
        return Value(ort.OrtValue.ortvalue_from_numpy(array, "webgpu", adapter), array, adapter)

    def run_session(self, r: random.Random, values: list[Value]) -> None:
        if not self.sessions:
            raise NothingThere
        session = r.choice(self.sessions)
        inputs = self.inputs(r, session, values)
        options, outputs = session.options(r), r.choice(["in place", "value", "value", "webgpu", "cpu"])
        if max((float(np.abs(it.array).max(initial=0)) for it in inputs.values()), default=0) > 1000:
            raise NothingThere  # halves have no larger integers
        binding, fixed = session.made.io_binding(), dict[str, Array]()
        for name, it in inputs.items():
            binding.bind_ortvalue_input(name, it.value)
            if it.adapter != session.adapter:
                fixed[name] = it.array  # ONNX Runtime copies it as it is bound
        expected = session.reference(**{name: it.array for name, it in inputs.items()})
        target = None
        if outputs == "in place" and session.reference in IN_PLACE:
            target = inputs["x"]
        elif outputs == "value":
            target = self.some(r, values, session.dtype, expected.shape)
        if target is not None:
            binding.bind_ortvalue_output("y", target.value)
        else:
            where = "cpu" if outputs == "cpu" else "webgpu"
            binding.bind_output("y", where, 0 if outputs == "cpu" else session.adapter)
        for _ in range(r.choice([1, 1, 2, 5])):
            expected = session.reference(**{name: fixed.get(name, it.array) for name, it in inputs.items()})
            session.made.run_with_iobinding(binding, options)
            if target is not None:
                target.array = expected
        found = target.value if target is not None else ort.OrtValue(binding.get_outputs_as_ortvaluevector()[0])
        assert np.array_equal(found.numpy(), expected), f"{session}: {found.numpy()} for {expected}"
        if target is None and outputs != "cpu":
            values.append(Value(found, expected, session.adapter))

    def make_session(self, r: random.Random, values: list[Value]) -> None:
        self.sessions.append(Session(r, self.places))
        del self.sessions[: len(self.sessions) - MOST // 2]

    def drop_session(self, r: random.Random, values: list[Value]) -> None:
        if self.sessions:
            del self.sessions[r.randrange(len(self.sessions))]

    def put(self, r: random.Random, values: list[Value]) -> None:
        if values:
            it = r.choice(values)
            it.put(np.full_like(it.array, r.randrange(50)))

    def copy(self, r: random.Random, values: list[Value]) -> None:
        if not values:
            raise NothingThere
        one = r.choice(values)
        other = self.some(r, values, one.array.dtype, one.array.shape)
        other.value.update_inplace(one.value)
        other.array = one.array

    def check(self, r: random.Random, values: list[Value]) -> None:
        if values:
            r.choice(values).check()

    def drop(self, r: random.Random, values: list[Value]) -> None:
        if values:
            del values[r.randrange(len(values))]

    def lend(self, r: random.Random, values: list[Value]) -> None:
        """A tensor becomes a buffer of wgpu's as well, and stays where it is."""
        fit = [it for it in values if it.array.size]
        if not fit:
            raise NothingThere
        it = r.choice(fit)
        device = memory.space().read(it.value.data_ptr(), it.array.nbytes).device
        if device.queue.library.name == "wgpu-native":
            webgpu_ep.buffer_of(it.value)

    def adopt(self, r: random.Random, values: list[Value]) -> None:
        """A buffer of wgpu's becomes a tensor."""
        fit = [it for it in self.sessions if state_of(it.made).library.name == "wgpu-native"]
        if not fit:
            raise NothingThere
        session, array = r.choice(fit), np.full((5, 8), r.randrange(50), r.choice(TYPES))
        gpu, offset = webgpu_ep.wgpu_device_of(session.made), r.choice([0, 4, 256])
        buffer = gpu.create_buffer(size=offset + -(-array.nbytes // 16) * 16, usage=STORAGE)
        value = webgpu_ep.ort_value_from(buffer, array.dtype.type, array.shape, offset)
        values.append(Value(value, array, session.adapter))
        values[-1].put(array)

    def lose(self, r: random.Random, values: list[Value]) -> None:
        devices = [device for it in contexts() if (device := it.current()) is not None]
        if devices:
            self.lost += LOSSES
            lose(r.choice(devices))

    def on_threads(self) -> None:
        """Threads with values of their own use the same sessions."""

        def work(seed: int) -> None:
            r, values = random.Random(seed), list[Value]()
            for _ in range(12):
                self.step(r, values, alone=False)
            for it in values:
                it.check()

        in_threads(work, [self.r.randrange(1 << 30) for _ in range(3)])


class NothingThere(Exception):
    """A step that there is nothing for."""


def places() -> list[tuple[int, dict[str, Any]]]:
    """The devices: adapters, and options."""
    found: list[tuple[int, dict[str, Any]]] = []
    for number, adapter in enumerate(adapters()):
        found += [(number, {}), (number, {"deviceId": 7})]
        with contextlib.suppress(webgpu_ep.DeviceError):
            adapter.through("", "dawn")
            found += [(number, {"webgpuLibrary": "dawn"}), (number, {"webgpuLibrary": "dawn", "deviceId": 4})]
    return found


if __name__ == "__main__":
    sys.exit(run_programs(lambda seed: Program(seed).run(), int(sys.argv[1]), int(sys.argv[2])))
