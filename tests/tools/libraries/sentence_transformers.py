"""A stand-in for sentence-transformers, which has its models from optimum."""

from collections.abc import Mapping

from optimum.onnxruntime import ORTModelForFeatureExtraction


class SentenceTransformer:
    def __init__(self, model_name_or_path: str, backend: str, model_kwargs: Mapping[str, str]) -> None:
        assert backend == "onnx"
        self.auto_model = ORTModelForFeatureExtraction.from_pretrained(model_name_or_path, **model_kwargs)
