"""What a session asks of the compiler beside a Target: the same model on the same adapter compiles to another Program with it.

In: provider options. Out: `CompileSettings`.
"""

from __future__ import annotations

from ..fields import set_by
from ..records import dataclass


@dataclass(frozen=True)
class CompileSettings:
    """What Programs are compiled with."""

    # What nodes rely on in data is asserted, for runs that check everything, at the price of memory and fusion.
    with_assertions: bool = set_by("validationMode", default=False, value=lambda mode: mode == "full")
    # Caches of cosines and sines have so many rows for short sequences, and behind them those for longer ones; 0: they are one.
    rotary_switch: int = set_by("multiRotaryCacheConcatOffset", default=0)
    # Rows that a model lets a product round to 8 bits are rounded.
    int8_activations: bool = set_by("enableInt8Activations", default=True)
    # Large matrix products of f32 are calculated by matrix units of f16.
    f16_products: bool = set_by("enableF16Products", default=False)
    # The graph can be compiled again for the sizes of a run. A Program of a file has no graph, nor has one in a browser.
    compiled_again: bool = False
    # Results may have sizes that data decides, which a host reads back.
    reads_sizes: bool = False
    # So are conditions: elements of small bools are symbols, as those of small integers are.
    reads_conditions: bool = False


DEFAULT = CompileSettings()
