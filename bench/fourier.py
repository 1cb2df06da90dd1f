"""GPU time of Fourier transforms: `python -m bench.fourier [--rows 4096] [--length 1024]`.

Out, per case: the best GPU time from timestamp queries, and its bytes per second, counting one load and one store of each
element. Then follow the medians of whole runs by this provider and by the CPU provider. An elementwise kernel on complex
numbers of the same size is measured for comparison. Results are compared with numpy's in f64. Without timestamp queries, the
GPU time is "-".
"""

from __future__ import annotations

import argparse
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper

from bench.data_sized import milliseconds
from tests import provider
from tests.support import make_model

from . import gpu_time

F = np.float32


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=4096)
    parser.add_argument("--length", type=int, default=1024)
    args = parser.parse_args()
    rng = np.random.default_rng(0)
    print(f"{'':28} {'GPU ms':>9} {'GB/s':>9} {'run ms':>9} {'CPU ms':>9} {'error':>9}")
    cases: list[tuple[str, int, str, dict[str, Any]]] = [
        ("DFT complex", 2, "DFT", {"axis": 1}),
        ("DFT real", 1, "DFT", {"axis": 1}),
        ("DFT one-sided", 1, "DFT", {"axis": 1, "onesided": 1}),
        ("Neg complex", 2, "Neg", {}),
    ]
    for name, parts, op, attributes in cases:
        x = rng.standard_normal((args.rows, args.length, parts)).astype(F)
        model = make_model([helper.make_node(op, ["x"], ["y"], **attributes)], {"x": (F, list(x.shape))}, opset=17)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.onnx"
            onnx.save(model, path)
            ours, theirs = provider.open_session(path, "ours"), provider.open_session(path, "cpu")
            feeds = {"x": x}
            found = ours.run(None, feeds)[0]
            try:
                seconds = gpu_time.ours(path, feeds)
                on_gpu = f"{seconds * 1e3:9.3f} {(x.nbytes + found.nbytes) / seconds / 1e9:9.0f}"
            except gpu_time.NoTimestampsError:
                on_gpu = f"{'-':>9} {'-':>9}"
            taken = [milliseconds(partial(it.run, None, feeds)) for it in (ours, theirs)]
        want = _expected(x, op, "onesided" in attributes)
        error = np.abs(found[..., 0] + 1j * found[..., 1] - want).max() / np.abs(want).max()
        print(f"{f'{name} {args.rows} x {args.length}':28} {on_gpu} {taken[0]:9.2f} {taken[1]:9.2f} {error:9.1e}")


def _expected(x: np.ndarray, op: str, onesided: bool) -> np.ndarray:
    values = x[..., 0].astype(np.float64) + (1j * x[..., 1] if x.shape[-1] == 2 else 0)
    if op == "Neg":
        return -values
    return np.fft.rfft(values.real, axis=1) if onesided else np.fft.fft(values, axis=1)


if __name__ == "__main__":
    main()
