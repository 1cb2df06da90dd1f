"""Writes the software bill of materials of a wheel in CycloneDX 1.6: `python scripts/sbom.py WHEEL [--output FILE]`.

In: a wheel, and an environment in which it, or this checkout, is installed. Versions and licences of dependencies come from
that environment. Out: JSON, by default beside the wheel, with:

- the wheel and its hash
- the components bundled in it, with the licence texts of `licenses/`
- every direct and indirect dependency, and the dependency graph

The same wheel and environment give the same bytes: there is no timestamp and no random number.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import uuid
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name, parse_wheel_filename

LICENSES = Path(__file__).parents[1] / "licenses"
BUNDLED = {"cffi": "MIT-0", "onnxruntime": "MIT", "webgpu-headers": "BSD-3-Clause", "wgpu-native": "MIT OR Apache-2.0"}
"""Projects with code or declarations in the wheel, by the name of the licence file."""


def needed(found: Distribution) -> Iterator[Distribution]:
    """Yields the direct dependencies of a package in this environment, without extras."""
    for text in found.requires or []:
        requirement = Requirement(text)
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            yield distribution(requirement.name)


def reached(start: Distribution) -> dict[str, Distribution]:
    """Returns all direct and indirect dependencies of a package by name, without itself."""
    known: dict[str, Distribution] = {}
    left = list(needed(start))
    while left:
        found = left.pop()
        name = canonicalize_name(found.name)
        if name not in known:
            known[name] = found
            left += needed(found)
    return dict(sorted(known.items()))


def reference(name: str, version: str) -> str:
    """Returns a package URL, which is also the key within the file."""
    return f"pkg:pypi/{canonicalize_name(name)}@{version}"


def licence_of(found: Distribution) -> list[dict[str, Any]]:
    """Returns the package's SPDX expression, else the licence names in its metadata; [] if it has only a whole text."""
    said = found.metadata
    if expression := said.get("License-Expression"):
        return [{"expression": expression}]
    name = said.get("License") or ""
    classes = [it.rpartition(" :: ")[2] for it in said.get_all("Classifier") or [] if it.startswith("License ::")]
    names = [name] if 0 < len(name) < 60 and "\n" not in name else classes
    return [{"license": {"name": it}} for it in names]


def component(found: Distribution) -> dict[str, Any]:
    key = reference(found.name, found.version)
    licences = licence_of(found)
    return {
        "type": "library",
        "bom-ref": key,
        "name": canonicalize_name(found.name),
        "version": found.version,
        "purl": key,
        **({"licenses": licences} if licences else {}),
    }


def bundled(name: str, licence: str) -> dict[str, Any]:
    text = (LICENSES / f"{name}.txt").read_text()
    what = text.partition("\n\n")[0]
    return {
        "type": "library",
        "bom-ref": f"bundled:{name}",
        "name": name,
        "description": " ".join(what.split()),
        "licenses": [{"expression": licence}],
    }


def document(wheel: Path) -> dict[str, Any]:
    """Returns the whole file. Raises PackageNotFoundError if a dependency of the wheel is not installed."""
    name, version, _, _ = parse_wheel_filename(wheel.name)
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    own = distribution(name)
    if own.version != str(version):
        raise SystemExit(f"error: {wheel.name} is of version {version}, and {own.version} is installed")
    key, others = reference(name, str(version)), reached(own)
    root = component(own) | {
        "hashes": [{"alg": "SHA-256", "content": digest}],
        "properties": [{"name": "file", "value": wheel.name}],
        "components": [bundled(*it) for it in sorted(BUNDLED.items())],
    }
    graph = {key: own} | {reference(it.name, it.version): it for it in others.values()}
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_OID, digest)}",
        "version": 1,
        "metadata": {"component": root},
        "components": [component(it) for it in others.values()],
        "dependencies": [
            {"ref": ref, "dependsOn": sorted({reference(it.name, it.version) for it in needed(found)})}
            for ref, found in graph.items()
        ],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--output", type=Path, help="a file; by default that of the wheel with .cdx.json")
    given = parser.parse_args()
    try:
        text = json.dumps(document(given.wheel), indent=2) + "\n"
    except PackageNotFoundError as error:
        raise SystemExit(f"error: {error.name} is not installed here: pip install the wheel first") from error
    (given.output or given.wheel.with_suffix(".cdx.json")).write_text(text)


if __name__ == "__main__":
    main()
