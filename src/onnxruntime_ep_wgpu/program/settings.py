"""The settings of a session for the compiler, besides the Target. They change the Program of a model.

In: provider options. Out: `CompileSettings`.
"""

from __future__ import annotations

from ..fields import set_by
from ..records import dataclass


@dataclass(frozen=True)
class CompileSettings:
    """The settings that Programs are compiled with."""

    # Requirements of nodes on data are asserted, for fully validated runs. This costs memory and fusion.
    with_assertions: bool = set_by("validationMode", default=False, value=lambda mode: mode == "full")
    # Rotary caches of cosines and sines have this many rows for short sequences, followed by those for long ones; 0: one cache.
    rotary_switch: int = set_by("multiRotaryCacheConcatOffset", default=0)
    # Activations are quantised to 8 bits if the model allows it for a product.
    int8_activations: bool = set_by("enableInt8Activations", default=True)
    # The graph can be compiled again for the sizes of a run. Programs in files and in browsers have no graph.
    compiled_again: bool = False
    # Results may have sizes that data decides. The host reads them back.
    reads_sizes: bool = False
    # The same for conditions: elements of small bools are symbols, like those of small integers.
    reads_conditions: bool = False


DEFAULT = CompileSettings()
