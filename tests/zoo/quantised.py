"""Models of the zoo after onnxruntime's own quantisation tools: QDQ, QOperator and dynamic."""

from __future__ import annotations

import contextlib
import logging
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_dynamic, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process

from . import minilm, resnet

SMALL, FULL = minilm.SMALL, minilm.FULL
PICTURES = 4


class _Pictures(CalibrationDataReader):
    """Random pictures to calibrate with."""

    def __init__(self, side: int) -> None:
        rng = np.random.default_rng(3)
        self._left = [rng.uniform(-1, 1, (1, 3, side, side)).astype(np.float32) for _ in range(PICTURES)]

    def get_next(self) -> dict[str, np.ndarray] | None:
        return {"image": self._left.pop()} if self._left else None


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """The tools warn of integers that they leave alone, and advise a preparation that changes nothing here."""
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


def cnn(qdq: bool) -> onnx.ModelProto:
    """A small ResNet, folded, uint8 activations and int8 weights; QDQ has a scale per channel, QOperator one per tensor."""
    with tempfile.TemporaryDirectory() as folder, _quiet():
        source, prepared, target = (Path(folder) / f"{name}.onnx" for name in ("source", "prepared", "target"))
        onnx.save(resnet.build(resnet.QUANTISED, folded=True), source)
        quant_pre_process(str(source), str(prepared), skip_symbolic_shape=True)
        quantize_static(
            str(prepared),
            str(target),
            _Pictures(resnet.QUANTISED.image),
            per_channel=qdq,
            quant_format=QuantFormat.QDQ if qdq else QuantFormat.QOperator,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
        )
        return onnx.load(target)


def dynamic(size: minilm.Size | None) -> onnx.ModelProto:
    """MiniLM with MatMulInteger and DynamicQuantizeLinear, uint8 weights."""
    with tempfile.TemporaryDirectory() as folder, _quiet():
        source, target = (Path(folder) / f"{name}.onnx" for name in ("source", "target"))
        onnx.save(minilm.build(size), source)
        quantize_dynamic(str(source), str(target), weight_type=QuantType.QUInt8)
        return onnx.load(target)
