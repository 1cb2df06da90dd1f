"""Opens a model as insightface does, with the providers that it is given."""

from collections.abc import Sequence
from types import SimpleNamespace

import onnxruntime as ort


def get_model(name: str, providers: Sequence[str]) -> SimpleNamespace:
    return SimpleNamespace(session=ort.InferenceSession(name, providers=list(providers)))
