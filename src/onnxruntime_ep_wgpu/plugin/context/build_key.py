"""The adapter, options and version of this package for which a context was made.

In: a Target and settings, or untrusted JSON. Out: a `BuildKey`, also as JSON. Invariant: if two are equal, the Programs that
they compile a graph to are interchangeable.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

from ... import version
from ...fields import option_names
from ...kept import entry
from ...program.compiled_for import compiled_for, with_library
from ...program.program import FORMAT_VERSION
from ...program.settings import CompileSettings
from ...program.target import Target
from ...records import dataclass
from ..store.identity import plain

FORMAT = 2  # of contexts


@dataclass(frozen=True)
class BuildKey:
    """The conditions for which a context was made.

    * `target`: a digest of all fields of the Target.
    * `library`: the name of the session's WebGPU library.
    * `options`: those that change a Program, as text.
    """

    version: str
    formats: str
    adapter: str
    library: str
    target: str
    options: Mapping[str, str]

    @classmethod
    def of(cls, target: Target, settings: CompileSettings) -> BuildKey:
        known = "\n".join(f"{it.name}={plain(getattr(target, it.name))}" for it in fields(target))
        options = {
            ", ".join(option_names(it)): plain(getattr(settings, it.name))
            for it in fields(settings)
            if option_names(it)
        }
        digest = hashlib.sha256(known.encode("utf-8", "backslashreplace")).hexdigest()
        formats = f"{entry.FORMAT}.{FORMAT}.{FORMAT_VERSION}"
        return cls(version.VERSION, formats, target.name, target.library, digest, options)

    @classmethod
    def read(cls, found: Any) -> BuildKey:
        """Reads untrusted JSON, parsed or as text. Raises ValueError."""
        found = compiled_for(found) if isinstance(found, str) else with_library(found)
        names = [it.name for it in fields(cls)]
        if sorted(found) != sorted(names) or type(found["options"]) is not dict:
            raise ValueError("it has no valid adapter, version and options")
        texts = [*(found[it] for it in names if it != "options"), *found["options"].values()]
        if any(type(it) is not str for it in texts):
            raise ValueError("it has no valid adapter, version and options")
        return cls(**found)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    def text(self) -> str:
        """Returns the text that ONNX Runtime stores in the metadata of the compiled model."""
        return json.dumps(self.as_json(), separators=(",", ":"), sort_keys=True)

    def __str__(self) -> str:
        options = ", ".join(f"{name}={value}" for name, value in sorted(self.options.items()))
        return f"version {self.version} of this package, the adapter {self.adapter!r} and the options {options}"

    def suits(self, other: BuildKey) -> bool:
        """Whether both have the same version and adapter, independent of options."""
        return (self.version, self.formats, self.target) == (other.version, other.formats, other.target)

    def differs(self, now: BuildKey) -> str:
        """Describes the differences from `now`; "" if there are none."""
        found = []
        if (self.version, self.formats) != (now.version, now.formats):
            found.append(
                f"version {self.version} of this package (formats {self.formats}) instead of {now.version} ({now.formats})"
            )
        if self.target != now.target:
            same = self.adapter == now.adapter
            there = f"the same adapter with other limits, features or tuning ({self.adapter!r})"
            found.append(there if same else f"the adapter {self.adapter!r} instead of {now.adapter!r}")
        for name in sorted({*self.options, *now.options}):
            before, after = (it.options.get(name, "(unset)") for it in (self, now))
            if before != after:
                found.append(f"the option {name}={before} instead of {after}")
        return "; ".join(found)
