"""Several devices at once: several_devices.py and moving.py on two software adapters, Mesa's lavapipe and SwiftShader.

Debian has SwiftShader in chromium-common. The tests run in a process of their own, because the Vulkan loader reads which
drivers to use when it starts.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests import apart, patience

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
    environment = {**os.environ, "VK_ICD_FILENAMES": ":".join(drivers())}
    return apart.results_of(TESTS, environment, tmp_path_factory.mktemp("several"))


@pytest.mark.costly
@pytest.mark.skipif(sys.platform != "linux", reason="chooses the drivers of the Vulkan loader of Linux")
@pytest.mark.parametrize("name", apart.names_of(TESTS))
def test_on_two_software_adapters(name: str, results: dict[str, list[str]]) -> None:
    assert name in results, "the test did not run"
    assert not results[name], "\n".join(results[name])


@pytest.mark.exhaustive
@pytest.mark.skipif(sys.platform != "linux", reason="chooses the drivers of the Vulkan loader of Linux")
@pytest.mark.parametrize("seed", range(0, 200, 50))
def test_random_programs_whose_tensors_move(seed: int) -> None:
    environment = patience.here() | {"VK_ICD_FILENAMES": ":".join(drivers())}
    done = patience.run([sys.executable, "-m", "tests.plugin.moving", str(seed), "50"], env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
