"""What a session's configuration says of contexts: whether to write a compiled model, where, and what lies in it.

In: ONNX Runtime's configuration entries of a session. Out: `ContextOptions`. ONNX Runtime checks the entries itself, and says where
the compiled model goes without them.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...records import dataclass

_ENABLED, _PATH, _EMBEDDED = "ep.context_enable", "ep.context_file_path", "ep.context_embed_mode"
_SHARED = "ep.share_ep_contexts"


@dataclass(frozen=True)
class ContextOptions:
    """`path` is where the compiled model goes, or where it comes from when it is in memory; "" where that is not said. The data of
    contexts are in the model when they are `embedded`, else in files beside it. Sessions whose contexts are `shared` have equal
    weights once on a device."""

    enabled: bool = False
    path: str = ""
    embedded: bool = False
    shared: bool = False

    @classmethod
    def of(cls, entries: Mapping[str, str]) -> ContextOptions:
        return cls(
            entries.get(_ENABLED) == "1",
            entries.get(_PATH, ""),
            entries.get(_EMBEDDED) == "1",
            entries.get(_SHARED) == "1",
        )

    def compiled_path(self, model: str) -> str:
        """Where ONNX Runtime writes the model that is compiled from the one at the path `model`; "" where nothing says so."""
        if self.path or not model:
            return self.path
        stem, dot, _ = model.rpartition(".")
        return f"{stem if dot else model}_ctx.onnx"
