"""Several devices at once: several_devices.py on two software adapters, Mesa's lavapipe and SwiftShader.

Debian has SwiftShader in chromium-common. The tests run in a process of their own, because the Vulkan loader reads which
drivers to use when it starts.
"""

from __future__ import annotations

import ast
import os
import sys
import xml.etree.ElementTree as ElementTree
from collections import defaultdict
from pathlib import Path

import pytest

from tests import patience

HERE = Path(__file__).parent
TESTS = HERE / "several_devices.py"
DRIVERS = (
    "/usr/share/vulkan/icd.d/lvp_icd.*.json",
    "/usr/lib*/chromium*/vk_swiftshader_icd.json",
)


def drivers() -> list[str]:
    found = [next(iter(sorted(Path("/").glob(pattern.lstrip("/")))), None) for pattern in DRIVERS]
    if None in found:
        pytest.skip(
            "needs Mesa's lavapipe and SwiftShader: on Debian, apt-get install mesa-vulkan-drivers chromium-common"
        )
    return [str(path) for path in found]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """What failed, by the name of the test."""
    report = tmp_path_factory.mktemp("several") / "report.xml"
    environment = {**os.environ, "VK_ICD_FILENAMES": ":".join(drivers())}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        f"--junitxml={report}",
        str(TESTS),
    ]
    ended = patience.run(command, env=environment, cwd=HERE.parents[1])
    assert report.exists(), ended.stdout + ended.stderr
    found: dict[str, list[str]] = defaultdict(list)
    for case in ElementTree.parse(report).iter("testcase"):
        problems = [f"{case.get('name')}: {it.text}" for it in case if it.tag in ("failure", "error")]
        found[str(case.get("name")).split("[")[0]] += problems
    assert ended.returncode == 0 or any(found.values()), ended.stdout + ended.stderr
    return found


def names() -> list[str]:
    functions = (it for it in ast.parse(TESTS.read_text()).body if isinstance(it, ast.FunctionDef))
    return [function.name for function in functions if function.name.startswith("test_")]


@pytest.mark.costly
@pytest.mark.skipif(sys.platform != "linux", reason="chooses the drivers of the Vulkan loader of Linux")
@pytest.mark.parametrize("name", names())
def test_on_two_software_adapters(name: str, results: dict[str, list[str]]) -> None:
    assert name in results, "the test did not run"
    assert not results[name], "\n".join(results[name])
