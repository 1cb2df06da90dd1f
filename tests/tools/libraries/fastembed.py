"""A stand-in for fastembed: opens a model as it does, with the providers that it is given."""

from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnxruntime as ort


class TextEmbedding:
    def __init__(self, model_name: str, providers: Sequence[str]) -> None:
        session = ort.InferenceSession("model.onnx", providers=list(providers))
        self.model = SimpleNamespace(model=session)

    def embed(self, documents: Sequence[str]) -> Iterator[Any]:
        for _ in documents:
            yield self.model.model.run(None, {"input": np.ones((1, 3, 4, 4), np.float32)})[0]
