"""Models in ONNX Runtime's own format whose control flow has nodes here and on the CPU, in every combination.

As a program it saves, opens and runs each of them, `python -m tests.plugin.ort_bodies FOLDER stock` or `ours` (who makes the
session), and prints a line per model: its name, "equal" or "refused", and the message. A node that follows an address of the other
side ends the process.
"""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnxruntime as ort
from onnx import parser

import onnxruntime_ep_wgpu as webgpu_ep

_HEADER = '<ir_version: 10, opset_import: ["" : 21]> '
# The nodes of a body, which reads r, and the graph's x where it says so. Names with a c are kept on the CPU.
_BODIES = {
    "here": "[h1] a = Mul(r, r)",
    "cpu": "[c1] a = Mul(r, r)",
    "both": "[h1] p = Mul(r, r) [c2] q = Neg(r) [h2] a = Add(p, q)",
    "both of x": "[h1] p = Mul(r, x) [c2] q = Neg(x) [h2] a = Add(p, q)",
}
# What the main graph does beside the If; the second is an output more.
_BEFORE = {
    "here": ("r = Tanh(x)", ""),
    "cpu": ("[c3] r = Tanh(x)", ""),
    "here, and cpu beside": ("r = Tanh(x)", "[c4] z = Neg(x)"),
    "cpu, and here beside": ("[c5] r = Tanh(x)", "z = Neg(x)"),
}
X = np.linspace(-2, 2, 12, dtype=np.float32).reshape(3, 4)


def _other(body: str) -> str:
    """The body with other names, for the other branch."""
    return re.sub(r"\b([hcpqa]\d?)\b(?=\]| =|,|\))", r"\1e", body)


def models() -> dict[str, str]:
    """By name, the texts of all models."""
    found = {}
    for (first, one), (second, two) in itertools.product(_BODIES.items(), repeat=2):
        for name, (before, beside) in _BEFORE.items():
            outputs = "float[N,4] y" + (", float[N,4] z" if beside else "")
            found[f"{name}: if {first} else {second}"] = (
                f"g (float[N,4] x, bool c) => ({outputs}) {{ {before} {beside} y = If (c) <then_branch = t () => "
                f"(float[N,4] a) {{ {one} }}, else_branch = e () => (float[N,4] ae) {{ {_other(two)} }}> }}"
            )
    for first, one in _BODIES.items():
        found[f"loop {first}"] = (
            "g (float[N,4] x, bool c) => (float[N,4] y) { r = Tanh(x) n = Constant<value = int64 {3}>() y = Loop (n, c, x) "
            f"<body = b (int64 i, bool k, float[N,4] s) => (bool l, float[N,4] t) {{ l = Identity(k) {one} t = Add(s, a) }}> }}"
        )
        inner = (
            f"y1 = If (c) <then_branch = t () => (float[N,4] a) {{ {one} }}, "
            "else_branch = e () => (float[N,4] b) { [h3] b = Neg(r) }>"
        )
        for name, outside, within in (("", "r = Tanh(x)", ""), (" own", "", "r = Tanh(x)")):
            found[f"nested{name} {first}"] = (
                f"g (float[N,4] x, bool c) => (float[N,4] y) {{ {outside} y = If (c) <then_branch = t1 () => (float[N,4] y1) "
                f"{{ {within} {inner} }}, else_branch = e1 () => (float[N,4] d) {{ d = Abs(x) }}> }}"
            )
    return found


def _settings() -> ort.SessionOptions:
    settings = ort.SessionOptions()
    settings.log_severity_level = 4
    settings.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return settings


def _stock(path: Path, forced: str) -> ort.InferenceSession:
    """A session as ONNX Runtime's own interface makes it."""
    settings = _settings()
    settings.add_provider_for_devices(webgpu_ep.devices()[:1], {"forceCpuNodeNames": forced})
    return ort.InferenceSession(str(path), settings)


def _ours(path: Path, forced: str) -> ort.InferenceSession:
    return webgpu_ep.session(path, sess_options=_settings(), allow_cpu_only=True, forceCpuNodeNames=forced)


def run(text: str, path: Path, make: Callable[[Path, str], ort.InferenceSession]) -> str:
    """What comes of one model, which is saved at `path`."""
    model = parser.parse_model(_HEADER + text).SerializeToString()
    saving = _settings()
    saving.optimized_model_filepath = str(path)
    cpu = ort.InferenceSession(model, saving, providers=["CPUExecutionProvider"])
    forced = "\n".join(re.findall(r"\[(c\w+)\]", text))
    try:
        session = make(path, forced)
        for condition in (True, False, True):
            feeds = {"x": X, "c": np.array(condition)}
            feeds = {it.name: feeds[it.name] for it in cpu.get_inputs()}
            for ours, theirs in zip(session.run(None, feeds), cpu.run(None, feeds), strict=True):
                np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)
    except Exception as error:
        if "does not copy tensors between providers" not in str(error):
            raise
        return f"refused\t{error}"
    return "equal\t"


def main() -> None:
    folder, make = Path(sys.argv[1]), {"stock": _stock, "ours": _ours}[sys.argv[2]]
    for name, text in models().items():
        print(name, end="\t", flush=True)
        print(run(text, folder / "model.ort", make), flush=True)


if __name__ == "__main__":
    main()
