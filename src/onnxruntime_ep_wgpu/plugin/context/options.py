"""The context options in a session's configuration: whether to write a compiled model, where, and with which content.

In: ONNX Runtime's configuration entries of a session. Out: `ContextOptions`. ONNX Runtime itself checks the entries, and has a
default path of the compiled model.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...records import dataclass

_ENABLED, _PATH, _EMBEDDED = "ep.context_enable", "ep.context_file_path", "ep.context_embed_mode"
_SHARED = "ep.share_ep_contexts"


@dataclass(frozen=True)
class ContextOptions:
    """The context options of one session.

    * `path`: the path of the compiled model to write, or of an opened one that is in memory; "" if it is not given.
    * `embedded`: the data of contexts are in the model, otherwise in files beside it.
    * `shared`: sessions with this option share equal weights on a device.
    """

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
        """Returns the path of the compiled model that ONNX Runtime writes for the model at `model`; "" if it is unknown."""
        if self.path or not model:
            return self.path
        stem, dot, _ = model.rpartition(".")
        return f"{stem if dot else model}_ctx.onnx"
