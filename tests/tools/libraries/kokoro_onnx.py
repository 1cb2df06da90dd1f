"""A stand-in for kokoro-onnx, which reads the provider from its environment."""

import os

import onnxruntime as ort


class Kokoro:
    def __init__(self, model_path: str, voices_path: str) -> None:
        self.sess = ort.InferenceSession("model.onnx", providers=[os.environ["ONNX_PROVIDER"]])
