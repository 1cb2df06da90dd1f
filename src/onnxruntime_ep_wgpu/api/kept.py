"""Sessions from compiled models in the cache, used if they are equivalent to sessions of the original models.

In: the arguments of `session()`. Out: the cache entry for them; the metadata of a session, to compare the two.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..options import parse, program_defaults

if TYPE_CHECKING:
    from ..device import Adapter
    from ..plugin.context.kept_model import KeptModels

_META = ("producer_name", "graph_name", "domain", "description", "graph_description", "version", "custom_metadata_map")


def kept_models(
    model: str | bytes, adapter: Adapter, given: Mapping[str, str], sizes: Mapping[str, int], sess_options: Any
) -> KeptModels | None:
    """Returns the cache entries for a model.

    Returns None if no compiled model may be used or stored: for bytes, with the caller's SessionOptions, with tools, and without
    a cache."""
    from ..plugin.tools import tool_waits

    if isinstance(model, bytes) or sess_options is not None or tool_waits():
        return None
    import onnxruntime as ort

    from ..plugin.context.kept_model import KeptModels

    options = parse(given, [program_defaults()])
    return KeptModels.of(model, adapter, options, sorted(sizes.items()), ort.__version__, ort.get_build_info())


def description_of(session: Any) -> dict[str, Any] | None:
    """Returns the metadata, inputs and outputs of a session.

    Returns None if a compiled model cannot have the same: some inputs or outputs are not tensors, or inputs have defaults."""
    meta = session.get_modelmeta()
    ends = [[[it.name, it.type, it.shape] for it in values] for values in (session.get_inputs(), session.get_outputs())]
    if session.get_overridable_initializers() or any(
        not kind.startswith("tensor(") for values in ends for _, kind, _ in values
    ):
        return None
    return {"meta": {it: getattr(meta, it) for it in _META}, "ends": ends}


def keep(kept: KeptModels, session: Any, state: Any) -> None:
    """Stores the compiled model of a session if it represents the whole model, else the reason why not."""
    from ..plugin.context.keeping import NOT_WHOLE

    keeping, says, matrices = state.keeping, description_of(session), state.matrices_found
    made, why = keeping.made, keeping.reason
    keeping.made = None
    if made is not None and says is None:
        why = "an input or output is not a tensor, or an initializer is an input"
    elif made is not None and says is not None:
        here = [it.name for it in state.assignment.placements() if it.on_webgpu and not it.within]
        if here == list(made.nodes) and len(here) == len(state.assignment.placements()):
            kept.keep(made, matrices, says)
            return
        why = NOT_WHOLE
    if why:
        kept.refuse(why, state.ep_contexts.build_key, matrices)
