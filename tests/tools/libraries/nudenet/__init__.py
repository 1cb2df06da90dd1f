"""A stand-in for NudeNet, which names the CPU."""

from pathlib import Path

import onnxruntime as ort


class NudeDetector:
    def __init__(self) -> None:
        path = Path(__file__).with_name("320n.onnx")
        self.onnx_session = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
