"""Which matrix units of an adapter gave wrong products: what a probe found, kept on disk for the next process.

In: what a probe depends on, as texts. Out: reasons by the text of a unit, or None where nothing was probed. Invariants: another
adapter, driver, library or probe is another entry; nothing here opens a device; a disk that fails costs a probe.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

KIND = "matrix units"
PROBE = 3
"""The number of the probe. Raise it with every change of its kernel, so that adapters are probed again."""

Refusals = Mapping[str, str]
_known: dict[str, Refusals] = {}


def recall(facts: Sequence[str]) -> Refusals | None:
    """What this or an earlier process found; None where nothing was probed. Reads at most one file."""
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
    """Notes what a probe of `adapter` found; without `lasting` for this process only."""
    from ..kept import entry
    from ..kept.folder import Folder, folder_path

    key = _key(facts)
    _known[key] = refused
    if lasting and (path := folder_path()) is not None:
        about = {"graph": "", "adapter": adapter}
        Folder(path).write(key, entry.written(key, entry.Entry(KIND, {}, {"refused": dict(refused)}, about)))


def _key(facts: Sequence[str]) -> str:
    import hashlib  # which takes longer to load than all of this package that lists devices

    return hashlib.sha256(repr((KIND, PROBE, *facts)).encode()).hexdigest()
