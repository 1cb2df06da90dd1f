"""Validation of a language model's arguments. In: arguments. Out: the same, of the right type. Raises InputError with the
argument's name, its value, and what to pass instead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from difflib import get_close_matches
from numbers import Integral
from typing import Any

import numpy as np

from ...errors import InputError, cut
from .sampler import Sampling


def text_argument(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise InputError(f"{name}={cut(value)}: pass a text")
    if not value:
        raise InputError(f"the {name} is empty: pass a text of at least one character")
    return value


def texts_argument(name: str, value: Any) -> list[str]:
    """Returns a list of texts. Rejects a single text, which is a sequence of texts too."""
    if isinstance(value, str) or not isinstance(value, Sequence) or not all(isinstance(it, str) for it in value):
        raise InputError(f"{name}={cut(value)}: pass a list of texts")
    return list(value)


def count_argument(name: str, value: Any, least: int, other: str) -> int | None:
    """Returns an integer of at least `least`, or None. `other` describes the meaning of None in the message."""
    if value is None:
        return None
    if not isinstance(value, Integral) or isinstance(value, bool) or value < least:
        raise InputError(f"{name}={cut(value)}: it is {least} or more, or None for {other}")
    return int(value)


def ids_argument(prompts: Any) -> list[list[int]]:
    """Returns the ids of one prompt or several, as lists of integers of any length."""
    given = [] if prompts is None else list(prompts) if isinstance(prompts, Sequence | np.ndarray) else [prompts]
    if not given:
        raise InputError("no prompts: pass at least one")
    for row, ids in enumerate(given):
        if isinstance(ids, str) or not isinstance(ids, Sequence | np.ndarray):
            raise InputError(f"prompt {row} is {cut(ids)}: pass a list of ids for each prompt; generate() takes texts")
        if all(type(it) is int for it in ids):  # ten times as fast as the check below
            continue
        wrong = next((it for it in ids if not isinstance(it, Integral) or isinstance(it, bool)), None)
        if wrong is not None:
            raise InputError(f"prompt {row} has {cut(wrong)} for an id: ids are whole numbers")
    return [[int(it) for it in ids] for ids in given]


def sampling_argument(settings: Mapping[str, Any]) -> Sampling:
    names = [it.name for it in fields(Sampling)]
    unknown = next((it for it in settings if it not in names), None)
    if unknown is not None:
        near = get_close_matches(unknown, [*names, "max_new_tokens", "stop"], 1)
        meant = f" (did you mean {near[0]}?)" if near else ""
        raise InputError(
            f"{unknown}={cut(settings[unknown])} is not an argument of this method{meant}: it takes {', '.join(names)},"
            " max_new_tokens and stop; max_length and provider options are those of LanguageModel(...)"
        )
    return Sampling(**settings)
