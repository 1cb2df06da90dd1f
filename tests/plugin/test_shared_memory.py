"""Outputs that are bound to the memory of an input: exact, or an error that names both, however many groups run the model."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import onnx.parser
import onnxruntime as ort
import pytest

import onnxruntime_ep_wgpu as webgpu_ep

HEAD = '<ir_version: 10, opset_import: ["" : 21]> g '
TWO_GROUPS = (
    "(float[4] x, float[4] z) => (float[4] y, float[4] o)"
    " { y = Exp (x) w = Neg (x) [mid] m = Softmax (w) t = Add (m, z) o = Tanh (t) }"
)
ONE_INPUT, MANY = ["x0", "x1", "x2"], range(24)


def grown(seed: int) -> tuple[bytes, list[str]]:
    """A model of three inputs, of which some nodes are for the CPU, and their names. These read what nodes make."""
    dice = np.random.default_rng(seed)
    values, lines, forced = list(ONE_INPUT), [], []
    for k in range(int(dice.integers(5, 14))):
        operator = str(dice.choice(["Add", "Mul", "Sub", "Tanh", "Neg", "Sigmoid"]))
        on_cpu = k > 1 and dice.random() < 0.35
        known = values[len(ONE_INPUT) :] if on_cpu and dice.random() < 0.9 else values
        late = known[-3:] if dice.random() < 0.6 else known
        read = [str(dice.choice(it)) for it in (late, known)][: 2 if operator in ("Add", "Mul", "Sub") else 1]
        lines.append(f"[n{k}] v{k} = {operator} ({', '.join(read)})")
        values.append(f"v{k}")
        if on_cpu:
            forced.append(f"n{k}")
    made = values[len(ONE_INPUT) :]
    outputs = dict.fromkeys([*(str(it) for it in dice.choice(made, 3)), made[-1]])
    given, found = (", ".join(f"float[70] {it}" for it in them) for them in (ONE_INPUT, outputs))
    model = onnx.parser.parse_model(f"{HEAD}({given}) => ({found}) {{ {' '.join(lines)} }}")
    return model.SerializeToString(), forced


def quiet() -> ort.SessionOptions:
    settings = ort.SessionOptions()
    settings.log_severity_level = 4
    return settings


def on_device(array: np.ndarray) -> Any:
    return ort.OrtValue.ortvalue_from_numpy(array, "webgpu", 0)


@pytest.mark.costly
@pytest.mark.parametrize("seed", MANY)
def test_an_output_in_an_inputs_memory_is_right_or_refused(seed: int) -> None:
    model, forced = grown(seed)
    session = webgpu_ep.session(model, sess_options=quiet(), allow_cpu_only=True, forceCpuNodeNames="\n".join(forced))
    feeds = dict(zip(ONE_INPUT, np.random.default_rng(seed).standard_normal((3, 70), np.float32), strict=True))
    wanted = ort.InferenceSession(model, quiet(), providers=["CPUExecutionProvider"]).run(None, feeds)
    names = [it.name for it in session.get_outputs()]
    for output, onto in itertools.product(names, ONE_INPUT):
        for _ in range(2):
            given = {name: on_device(array) for name, array in feeds.items()}
            binding = session.io_binding()
            for name, value in given.items():
                binding.bind_ortvalue_input(name, value)
            for name in names:
                binding.bind_ortvalue_output(name, given[onto] if name == output else on_device(feeds["x0"]))
            try:
                session.run_with_iobinding(binding)
            except webgpu_ep.InputError as error:
                assert f"the output {output!r} is bound to memory of the input {onto!r}" in str(error)
                np.testing.assert_array_equal(given[onto].numpy(), feeds[onto])  # nothing ran
                continue
            for got, want in zip(binding.copy_outputs_to_cpu(), wanted, strict=True):
                np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def bound(session: ort.InferenceSession, **places: Any) -> Any:
    binding = session.io_binding()
    for name in ("x", "z"):
        binding.bind_ortvalue_input(name, places[name])
    for name in ("y", "o"):
        binding.bind_ortvalue_output(name, places[name])
    return binding


ROW = np.arange(4, dtype=np.float32)


def two_groups(**options: Any) -> ort.InferenceSession:
    model = onnx.parser.parse_model(HEAD + TWO_GROUPS).SerializeToString()
    return webgpu_ep.session(model, sess_options=quiet(), **{"forceCpuNodeNames": "mid"} | options)


def test_what_a_later_group_reads_is_not_overwritten() -> None:
    session = two_groups()
    x, z, y, o = (on_device(ROW) for _ in range(4))
    binding = bound(session, x=x, z=z, y=z, o=o)
    for _ in range(2):
        with pytest.raises(
            webgpu_ep.InputError, match=r"the output 'y' is bound to memory of the input 'z'.*of its own"
        ):
            session.run_with_iobinding(binding)
    # Bound anew it runs, also in the memory of the input that its own group reads.
    binding.bind_ortvalue_output("y", x)
    session.run_with_iobinding(binding)
    np.testing.assert_allclose(binding.copy_outputs_to_cpu()[0], np.exp(ROW), rtol=1e-5)
    binding.clear_binding_outputs()
    binding.bind_ortvalue_output("y", y)
    binding.bind_output("o", "webgpu")
    session.run_with_iobinding(binding)
    np.testing.assert_array_equal(z.numpy(), ROW)


def test_addresses_count_as_tensors_do() -> None:
    session = two_groups()
    x, z = on_device(ROW), on_device(ROW)
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", x)
    binding.bind_input("z", "webgpu", 0, np.float32, [4], z.data_ptr())
    binding.bind_output("y", "webgpu", 0, 1, [4], z.data_ptr())
    binding.bind_output("o", "webgpu")
    with pytest.raises(webgpu_ep.InputError, match="'y' is bound to memory of the input 'z'"):
        session.run_with_iobinding(binding)
    binding.bind_cpu_input("z", ROW)  # it is brought to memory of its own before the run
    session.run_with_iobinding(binding)


def test_one_group_is_not_looked_at() -> None:
    session = two_groups(forceCpuNodeNames="")
    assert type(session.io_binding()) is ort.IOBinding
    x, z, o = (on_device(ROW) for _ in range(3))
    session.run_with_iobinding(bound(session, x=x, z=z, y=z, o=o))
    np.testing.assert_allclose(z.numpy(), np.exp(ROW), rtol=1e-5)
    softmax = np.exp(-ROW) / np.exp(-ROW).sum()
    np.testing.assert_allclose(o.numpy(), np.tanh(softmax + ROW), rtol=1e-4)
