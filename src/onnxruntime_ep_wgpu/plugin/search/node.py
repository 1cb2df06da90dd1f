"""A node that generates text, as ONNX Runtime calls it. Its bodies run here, with one readback of scores per step.

In: a kernel context with the operator's inputs, and the values that its bodies read from the surrounding graph. Out: its
outputs. Invariants: thread safe. Only compiled parts are kept between runs. An interrupt ends a generation at once, because it
may take long, and its outputs are then padding and zeros. A run of a group, in contrast, finishes first.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ...device import forget_errors
from ...errors import DeviceError
from ...program.dtypes import DType
from ..abi import Ort
from ..callbacks import defers_interrupt
from ..known_tensors import FusedNode
from ..node import ComputeInfo
from ..step_memory import StepMemory
from ..tensors import Tensors
from .bodies import DECODER
from .decoders import CachedDecoder, EncoderDecoder, Gpt, LiveBodies
from .generate import generate, interrupted_outputs
from .operators import GPT, WHISPER, Search
from .parameters import parameters_of
from .steps import SearchStep

if TYPE_CHECKING:
    from ...runtime.inputs import DeviceTensor

Array = np.ndarray[Any, Any]


class SearchNode(ComputeInfo, struct="OrtNodeComputeInfo", kind="Node"):
    """A compiled search.

    `constants` has the values of constant inputs, and `types` the types of outputs, both by the names in the schema.
    """

    def __init__(
        self,
        ort: Ort,
        search: Search,
        steps: Mapping[str, SearchStep],
        signature: FusedNode,
        constants: Mapping[str, Array],
        types: Mapping[str, DType],
    ) -> None:
        super().__init__(ort, steps[DECODER].group, signature)
        self._search, self._steps, self._constants, self._types = search, steps, constants, types
        names = signature.input_names
        self._places = {name: names.index(value) for name, value in search.inputs.items() if value in names}
        captured = {name for step in steps.values() for name in step.body.captured}
        self._captured = {name: names.index(name) for name in captured}
        sound = {"input_ids"} if search.model == WHISPER else set()
        self._valued = frozenset(place for name, place in self._places.items() if name not in sound)

    def run(self, _state: Any, context: Any) -> None:
        forget_errors()
        live = self._on_device()
        device = live.groups[DECODER].device
        tensors = Tensors(self.ort, self._signature, device, context)
        try:
            made = self._generate(live, tensors.inputs(self._valued))
            results = [made[name].astype(self._types[name].numpy, copy=False) for name in self._search.outputs]
            wanted = [(self._types[name], it.shape) for name, it in zip(self._search.outputs, results, strict=True)]
            for place, result in zip(tensors.outputs(wanted), results, strict=True):
                if place is not None:
                    device.upload(*place, np.ascontiguousarray(result))
            tensors.copy_outputs()
        finally:
            tensors.close()

    def _generate(self, live: LiveBodies, tensors: list[DeviceTensor]) -> dict[str, Array]:
        values = dict(self._constants)
        for name, place in self._places.items():
            value = tensors[place].value
            if value is not None:
                values[name] = value
        source = tensors[self._places["input_ids"]] if "input_ids" in self._places else None
        shape = values["input_ids"].shape if source is None else source.shape
        parameters = parameters_of(self._search, values, shape, self._steps[DECODER].body.vocabulary)
        captured = {name: tensors[place] for name, place in self._captured.items()}
        with StepMemory(live.groups[DECODER].device) as memory:
            decoder: CachedDecoder
            if self._search.model == GPT:
                decoder = Gpt(live, memory, parameters, captured)
            else:
                if source is None:
                    source = memory.upload(values["input_ids"], "what the encoder reads")
                decoder = EncoderDecoder(live, memory, parameters, source, captured)
            try:
                return generate(decoder, parameters)
            except KeyboardInterrupt as interrupt:
                # It is raised again after ONNX Runtime has returned, or else here.
                if not defers_interrupt(interrupt):
                    raise
                return interrupted_outputs(parameters)

    def _on_device(self) -> LiveBodies:
        """Returns all bodies on one device. Raises DeviceError if devices are lost faster than bodies are made again."""
        for _ in range(8):
            groups = {name: step.group.on_device() for name, step in self._steps.items()}
            if len({id(it.device) for it in groups.values()}) == 1:
                return LiveBodies(self._steps, groups)
        raise DeviceError("the device was lost repeatedly while weights were uploaded")
