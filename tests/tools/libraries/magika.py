"""A stand-in for Magika, which names the CPU."""

from pathlib import Path

import onnxruntime as ort


class Magika:
    def __init__(self) -> None:
        self._model_path = Path("model.onnx")
        self._onnx_session = ort.InferenceSession(self._model_path, providers=["CPUExecutionProvider"])
