"""A stand-in for RapidOCR: its configuration holds sessions once it is told that it may hold objects."""

from typing import Any

import numpy as np


class Section:
    def __init__(self) -> None:
        self._flags: dict[str, bool] = {}

    def _set_flag(self, name: str, value: bool) -> None:
        self._flags[name] = value

    def __setattr__(self, name: str, value: object) -> None:
        assert name == "_flags" or self._flags.get("allow_objects"), "a configuration holds no objects"
        super().__setattr__(name, value)


class RapidOCR:
    def __init__(self) -> None:
        self.cfg = {part: Section() for part in ("Det", "Cls", "Rec")}

    def __call__(self, path: str) -> list[Any]:
        x = np.ones((1, 3, 4, 4), np.float32)
        return [section.session.run(None, {"input": x})[0] for section in self.cfg.values()]
