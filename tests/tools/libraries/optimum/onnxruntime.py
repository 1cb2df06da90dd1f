"""Opens a model as optimum does, with the provider that it is given."""

from __future__ import annotations

import onnxruntime as ort


class ORTModelForFeatureExtraction:
    def __init__(self, session: ort.InferenceSession) -> None:
        self.session = session

    @classmethod
    def from_pretrained(cls, model_id: str, provider: str) -> ORTModelForFeatureExtraction:
        return cls(ort.InferenceSession("model.onnx", providers=[provider]))
