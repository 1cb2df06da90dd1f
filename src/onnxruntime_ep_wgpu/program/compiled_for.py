"""The text in the metadata of a compiled model that states for what it was compiled. `BuildKey` of the plugin writes it.

In: untrusted JSON. Out: its fields. They are read before ONNX Runtime shows the model, and for texts of other versions of this
package too, so only the library's name is checked here.
"""

from __future__ import annotations

from typing import Any

from .reading import parsed

LIBRARY = "library"


def compiled_for(text: bytes | str) -> dict[str, Any]:
    """Returns the fields of the text. Raises ValueError."""
    return with_library(parsed(text))


def with_library(found: Any) -> dict[str, Any]:
    """Returns parsed fields. The library is "" in those of format 1, which had none. Raises ValueError."""
    if type(found) is not dict or type(found.get(LIBRARY, "")) is not str:
        raise ValueError("it has no valid adapter, version and options")
    return {LIBRARY: "", **found}
