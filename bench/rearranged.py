"""Detects arithmetic that an adapter's driver reorders inside a kernel: `python -m bench.rearranged [--device D]`.

In: chains of fused nodes, and inputs (large, infinite, NaN) for which a reordered chain gives another result. Out: per chain,
the inputs with a result other than that of its single nodes in f32, and both results. The sign of zero counts.
"""

from __future__ import annotations

import argparse

import numpy as np
import onnx.parser
import onnxruntime as ort

import onnxruntime_ep_wgpu as webgpu_ep

INF, NAN = np.inf, np.nan
FEEDS = {
    "x": np.array([1.25, -3.75, 0.0, -0.0, INF, NAN, 3e38], np.float32),
    "z": np.array([1e30, 1e30, 1e30, INF, INF, NAN, -3e38], np.float32),
}
CHAINS = {
    "(x + z) - z": "a = Add (x, z) y = Sub (a, z)",
    "(x + 1e30) - 1e30": "c = Constant <value = float {1e30}> () a = Add (x, c) y = Sub (a, c)",
    "x - x": "y = Sub (x, x)",
    "x + -x": "a = Neg (x) y = Add (x, a)",
    "x * z - x * z": "a = Mul (x, z) b = Mul (x, z) y = Sub (a, b)",
    "x + 0": "c = Constant <value = float {0}> () y = Add (x, c)",
    "0 - x": "c = Constant <value = float {0}> () y = Sub (c, x)",
    "x * 0": "c = Constant <value = float {0}> () y = Mul (x, c)",
    "0 / x": "c = Constant <value = float {0}> () y = Div (c, x)",
    "x * 1e20 * 1e20": "c = Constant <value = float {1e20}> () a = Mul (x, c) y = Mul (a, c)",
    "x * 3e38 / 3e38": "c = Constant <value = float {3e38}> () a = Mul (x, c) y = Div (a, c)",
    "x * 2 / 2": "c = Constant <value = float {2}> () a = Mul (x, c) y = Div (a, c)",
    "x * z / z": "a = Mul (x, z) y = Div (a, z)",
    "x / x": "y = Div (x, x)",
    "sqrt(x) * sqrt(x)": "a = Sqrt (x) y = Mul (a, a)",
    "1 / (1 / x)": "a = Reciprocal (x) y = Reciprocal (a)",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", help="number or part of the name of a device (see wgpu-ep info)")
    asked = parser.parse_args().device
    device = int(asked) if asked is not None and asked.isdigit() else asked
    settings = ort.SessionOptions()
    settings.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    settings.log_severity_level = 3
    for chain, nodes in CHAINS.items():
        text = f'<ir_version: 10, opset_import: ["" : 21]> g (float[N] x, float[N] z) => (float[N] y) {{ {nodes} }}'
        model = onnx.parser.parse_model(text).SerializeToString()
        (want,) = ort.InferenceSession(model, settings, providers=["CPUExecutionProvider"]).run(None, FEEDS)
        (got,) = webgpu_ep.session(model, device=device, sess_options=settings).run(None, FEEDS)
        close = np.isclose(got, want, rtol=1e-6, atol=0, equal_nan=True)
        other = ~(close & (np.isnan(want) | (np.signbit(got) == np.signbit(want))))
        print(f"{chain}: " + ("as written" if not other.any() else "rearranged"))
        for name, values in {**FEEDS, "is": got, "would be": want}.items() if other.any() else ():
            print(f"    {name:<9}" + " ".join(f"{it:>9.4g}" for it in values[other]))


if __name__ == "__main__":
    main()
