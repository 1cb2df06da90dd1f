"""The matrix units of an adapter that gave wrong products in a probe. Kept on disk for later processes.

In: the inputs of a probe, as strings. Out: reasons by the name of a unit, or None if nothing was probed. Invariants: each
adapter, driver, library and probe version has an entry of its own. No device is opened here. A failing disk costs only
another probe.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

KIND = "matrix units"
PROBE = 3
"""The version of the probe. Raise it with every change of the kernel, so that adapters are probed again."""

Refusals = Mapping[str, str]
_known: dict[str, Refusals] = {}


def recall(facts: Sequence[str]) -> Refusals | None:
    """Returns the result of a probe of this or an earlier process; None if nothing was probed. Reads at most one file."""
    from ..kept import entry
    from ..kept.folder import Folder, folder_path

    key = _key(facts)
    if key not in _known and (path := folder_path()) is not None:
        try:
            found = entry.read(Folder(path).read(key) or b"", key, KIND).content["refused"]
            if all(type(it) is str for it in found.values()):
                _known[key] = found
        except (entry.EntryError, AttributeError, KeyError):
            return None
    return _known.get(key)


def remember(facts: Sequence[str], adapter: str, refused: Refusals, lasting: bool = True) -> None:
    """Records the result of a probe of `adapter`. Without `lasting` it is for this process only."""
    from ..kept import entry
    from ..kept.folder import Folder, folder_path

    key = _key(facts)
    _known[key] = refused
    if lasting and (path := folder_path()) is not None:
        about = {"graph": "", "adapter": adapter}
        Folder(path).write(key, entry.written(key, entry.Entry(KIND, {}, {"refused": dict(refused)}, about)))


def _key(facts: Sequence[str]) -> str:
    import hashlib  # takes longer to import than everything that lists devices

    return hashlib.sha256(repr((KIND, PROBE, *facts)).encode()).hexdigest()
