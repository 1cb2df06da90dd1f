"""A folder as the cache of Hugging Face has one: its files are links to files of another folder, with other names."""

from __future__ import annotations

from pathlib import Path


def in_a_cache(folder: Path) -> None:
    """Moves the files of a folder into `blobs` beside it, and leaves links to them."""
    blobs = folder.parent / "blobs"
    blobs.mkdir()
    for number, path in enumerate(sorted(folder.iterdir())):
        path.rename(blobs / f"{number}abc")
        path.symlink_to(Path("..") / "blobs" / f"{number}abc")
