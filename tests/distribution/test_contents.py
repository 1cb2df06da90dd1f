"""What a wheel says of itself: on which systems it runs, whose work is in it, what it needs."""

from __future__ import annotations

import json
import platform
import re
import runpy
import sys
import tomllib
import zipfile
from email.parser import Parser
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from .building import ROOT, run

PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
FORMS = [it for it in sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml")) if it.stem != "config"]
SBOM = runpy.run_path(str(ROOT / "scripts" / "sbom.py"))


@pytest.mark.exhaustive
def test_the_wheel_needs_the_c_library_alone(distributions: dict[str, Path], portable: Path) -> None:
    """And no later one than that of the machine that built it: a manylinux image has an older one."""
    shown = run(sys.executable, "-m", "auditwheel", "show", distributions["wheel"])
    said = " ".join(shown.split())
    versions = {(int(a), int(b)) for a, b in re.findall(r"GLIBC_(\d+)\.(\d+)", said)}
    assert re.findall(r"([\w.+-]+\.so[\w.]*) with versions", said) == ["libc.so.6"]
    here = tuple(int(it) for it in platform.libc_ver()[1].split("."))
    assert versions and max(versions) <= here
    tags = re.findall(r"manylinux_(\d+)_(\d+)_" + platform.machine(), portable.name)
    assert tags and all((int(a), int(b)) <= here for a, b in tags)
    before, after = (set(zipfile.ZipFile(it).namelist()) for it in (distributions["wheel"], portable))
    assert {it for it in after - before if not it.endswith("/") and "sbom" not in it} == set(), (
        "no library was copied into it"
    )


@pytest.mark.exhaustive
def test_the_wheel_has_the_licences_of_all_whose_work_is_in_it(distributions: dict[str, Path]) -> None:
    with zipfile.ZipFile(distributions["wheel"]) as wheel:
        (metadata,) = (it for it in wheel.namelist() if it.endswith(".dist-info/METADATA"))
        said = Parser().parsestr(wheel.read(metadata).decode())
        folder = metadata.removesuffix("METADATA") + "licenses/"
        for path in (ROOT / "LICENSE", *(ROOT / "licenses").iterdir()):
            assert wheel.read(folder + path.relative_to(ROOT).as_posix()) == path.read_bytes()
    assert {path.stem for path in (ROOT / "licenses").iterdir()} == set(SBOM["BUNDLED"])
    chosen = {expression.split(" OR ")[0] for expression in SBOM["BUNDLED"].values()}
    assert set(said["License-Expression"].split(" AND ")) == {"MIT", *chosen}


@pytest.mark.exhaustive
def test_the_bill_of_materials_has_what_is_needed_and_what_needs_it(
    distributions: dict[str, Path], tmp_path: Path
) -> None:
    texts = []
    for name in ("one.json", "two.json"):
        run(sys.executable, ROOT / "scripts" / "sbom.py", distributions["wheel"], "--output", tmp_path / name)
        texts.append((tmp_path / name).read_text())
    assert texts[0] == texts[1]
    found = json.loads(texts[0])
    assert (found["bomFormat"], found["specVersion"]) == ("CycloneDX", "1.6")
    root = found["metadata"]["component"]
    assert {it["name"] for it in root["components"]} == set(SBOM["BUNDLED"])
    keys = [root["bom-ref"], *(it["bom-ref"] for it in found["components"])]
    graph = {it["ref"]: set(it["dependsOn"]) for it in found["dependencies"]}
    assert len(set(keys)) == len(keys) and set(graph) == set(keys)
    assert set().union(*graph.values()) == set(keys[1:]), "each is needed by one that is there"
    direct = {it.split("@")[0].removeprefix("pkg:pypi/") for it in graph[keys[0]]}
    assert direct == {canonicalize_name(Requirement(it).name) for it in PROJECT["project"]["dependencies"]}


@pytest.mark.parametrize("name", ["run", "test"])
def test_the_lock_files_fit_the_project(name: str) -> None:
    text = (ROOT / "requirements" / f"{name}.txt").read_text()
    assert "://" not in text and "--index" not in text and "--find-links" not in text, "no address of a registry"
    entries = re.findall(r"^(\S+==\S+.*?)((?: \\\n    --hash=sha256:[0-9a-f]{64})+)$", text, re.MULTILINE)
    assert len(entries) == len(re.findall(r"^[^\s#]", text, re.MULTILINE)), "each has a hash"
    locked: dict[str, list[Requirement]] = {}
    for line, _ in entries:
        requirement = Requirement(line)
        locked.setdefault(canonicalize_name(requirement.name), []).append(requirement)
    wanted = PROJECT["project"]["dependencies"] + (
        PROJECT["project"]["optional-dependencies"]["test"] if name == "test" else []
    )
    for requirement in map(Requirement, wanted):
        versions = [next(iter(it.specifier)).version for it in locked[canonicalize_name(requirement.name)]]
        assert all(requirement.specifier.contains(it) for it in versions), f"{requirement}: run scripts/lock"


@pytest.mark.exhaustive
def test_cibuildwheel_builds_what_the_workflow_asks_for() -> None:
    yaml = pytest.importorskip("yaml")
    known: set[str] = set()
    for system in ("linux", "macos", "windows"):
        command = (sys.executable, "-m", "cibuildwheel", "--print-build-identifiers", "--archs", "all")
        known |= set(run(*command, "--platform", system, ROOT).split())
    assert known == set(PROJECT["tool"]["cibuildwheel"]["build"].split())
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "wheels.yml").read_text())
    matrix = workflow["jobs"]["wheels"]["strategy"]["matrix"]["include"]
    assert {it for entry in matrix for it in entry["builds"].split()} == known
    assert [it["runner"] for it in matrix] == workflow["jobs"]["contents"]["strategy"]["matrix"]["runner"]


@pytest.mark.parametrize("path", FORMS, ids=lambda it: it.stem)
def test_the_forms_for_issues_are_complete(path: Path) -> None:
    yaml = pytest.importorskip("yaml")
    form = yaml.safe_load(path.read_text())
    assert form["name"] and form["description"]
    assert all(it["type"] in ("textarea", "input", "checkboxes", "dropdown") for it in form["body"])
    assert all(it["attributes"]["label"] for it in form["body"])
    ids = [it["id"] for it in form["body"]]
    assert len(set(ids)) == len(ids)


def test_the_first_release_of_the_changes_is_this_version() -> None:
    heads = re.findall(r"^## (\d+)\.(\d+)\.(\d+) \((.+)\)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert len(heads) == (ROOT / "CHANGELOG.md").read_text().count("\n## "), "VERSION (date), or (not released yet)"
    numbers = [tuple(map(int, head[:3])) for head in heads]
    assert numbers == sorted(set(numbers), reverse=True)
    version = runpy.run_path(str(ROOT / "src" / "onnxruntime_ep_wgpu" / "version.py"))["VERSION"]
    assert ".".join(map(str, numbers[0])) == version
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\d|not released yet", head[3]) for head in heads)
