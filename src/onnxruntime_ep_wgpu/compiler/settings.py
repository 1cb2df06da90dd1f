"""What a session asks of the compiler beside a Target: the same model on the same adapter compiles to another Program with it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class CompileSettings:
    """`with_assertions`: what nodes rely on in data is asserted, for runs that check everything, at the price of memory and
    fusion. `rotary_switch`: caches of cosines and sines have so many rows for short sequences, and behind them those for
    sequences that are longer; 0 for caches that are one."""

    with_assertions: bool = False
    rotary_switch: int = 0


DEFAULT = CompileSettings()
