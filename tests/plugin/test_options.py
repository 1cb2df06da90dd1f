"""Options are checked, and a wrong one is explained."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from onnxruntime_ep_wgpu.errors import OptionError
from onnxruntime_ep_wgpu.options import NO_EFFECT, OPTIONS, as_text, parse, set_default_options

PAGE = Path(__file__).parents[2] / "docs" / "options.md"

# Options about which device and how it is replayed.
ELSEWHERE = {"preserveDevice", "adapterIndex", "dawnBackendType"}


def test_every_default_is_valid() -> None:
    assert parse({key: option.default for key, option in OPTIONS.items()}).without_effect() == []


@pytest.mark.parametrize("key", OPTIONS)
def test_every_option_is_documented(key: str) -> None:
    option = OPTIONS[key]
    (row,) = (line for line in PAGE.read_text().splitlines() if line.startswith(f"| `{key}` |"))
    assert option.help.endswith(".") and option.help in row and option.domain in row.replace("\\|", "|")


@pytest.mark.parametrize("key", [key for key in OPTIONS if key not in ("forceCpuNodeNames", "tuningTable")])
@pytest.mark.parametrize(
    "value", ["nonsense", "", " 1", "-1", "00", "12x", "1_0", "0x1", "\u0661", "99999999999999999999"]
)
def test_a_wrong_value_is_an_error_that_names_key_value_and_domain(key: str, value: str) -> None:
    if value == OPTIONS[key].default:
        assert not value and "empty" in OPTIONS[key].domain
        return
    with pytest.raises(OptionError) as raised:
        parse({key: value})
    assert repr(key) in str(raised.value)
    assert repr(value) in str(raised.value)
    assert OPTIONS[key].domain in str(raised.value)


@pytest.mark.parametrize(
    ("wrong", "near"),
    [
        ("preferedLayout", "preferredLayout"),
        ("PREFERREDLAYOUT", "preferredLayout"),
        ("powerPreferrence", "powerPreference"),
        ("enable_int64", "enableInt64"),
        ("forceCpuNodes", "forceCpuNodeNames"),
    ],
)
def test_an_unknown_key_names_the_nearest_one_and_where_all_are(wrong: str, near: str) -> None:
    with pytest.raises(OptionError) as raised:
        parse({wrong: "1"})
    assert f"unknown option {wrong!r} with the value '1' (did you mean {near!r}?)" in str(raised.value)
    assert str(raised.value).endswith(f"; `wgpu-ep options` and docs/options.md list all {len(OPTIONS)}")


def test_a_wrong_value_names_the_nearest_one() -> None:
    with pytest.raises(OptionError, match="did you mean 'high-performance'"):
        parse({"powerPreference": "highperformance"})
    with pytest.raises(OptionError, match="did you mean 'NHWC'"):
        parse({"preferredLayout": "nhwc"})


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("deviceId", "3", 3),
        ("enableGraphCapture", "1", True),
        ("preferredLayout", "NCHW", "NCHW"),
        ("maxStorageBufferBindingSize", "0", 0),
        ("maxStorageBufferBindingSize", str(128 << 20), 128 << 20),
        ("maxNumPendingDispatches", "4096", 4096),
        ("forceCpuNodeNames", "first\n\n second \n", ("first", "second")),
        ("webgpuDevice", "0", 0),
    ],
)
def test_values_are_read(key: str, text: str, value: object) -> None:
    assert parse({key: text})[key] == value


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("maxStorageBufferBindingSize", str((128 << 20) - 1)),
        ("maxNumPendingDispatches", "0"),
        ("maxNumPendingDispatches", "4097"),
        ("multiRotaryCacheConcatOffset", str(2**32)),
        ("webgpuInstance", "0x7fff00000000"),
        ("kvCacheQuantizationBits", "5"),
        ("dawnBackendType", "Metal"),
    ],
)
def test_numbers_outside_their_range_are_refused(key: str, text: str) -> None:
    with pytest.raises(OptionError):
        parse({key: text})


def test_values_that_change_nothing_are_told() -> None:
    asked = {"preferredLayout": "NCHW", "enableMatmulFp32Accumulation": "0", "weightLoadAcceleration": "preferred"}
    assert parse(asked).without_effect() == list(asked)
    assert parse({"kvCacheQuantizationBits": "8"}).without_effect() == ["kvCacheQuantizationBits"]
    assert parse({"preferredLayout": "NHWC", "enableInt64": "0", "validationMode": "full"}).without_effect() == []


def test_only_options_whose_operator_does_not_run_here_have_no_effect() -> None:
    unfinished = {key for key, option in OPTIONS.items() if option.effect.startswith(NO_EFFECT)}
    assert unfinished <= ELSEWHERE | {"kvCacheQuantizationBits"}


@pytest.mark.parametrize(
    ("key", "text", "reason"),
    [
        ("dawnProcTable", "140737353977856", "is rejected: this provider is built on wgpu"),
        ("weightLoadAcceleration", "required", "is rejected: WebGPU accesses GPU memory only through the host"),
    ],
)
def test_what_cannot_be_granted_is_refused_with_the_reason(key: str, text: str, reason: str) -> None:
    with pytest.raises(OptionError, match=reason):
        parse({key: text})


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("enableInt64", True, "1"),
        ("enableInt64", 0, "0"),
        ("deviceId", 3, "3"),
        ("deviceId", np.int64(3), "3"),
        ("kvCacheQuantizationBits", 8, "8"),
        ("preferredLayout", "NHWC", "NHWC"),
        ("forceCpuNodeNames", ["a", "b"], "a\nb"),
        ("forceCpuNodeNames", ("a",), "a"),
        ("tuningTable", Path("table.json"), "table.json"),
    ],
)
def test_python_values_become_text(key: str, value: object, text: str) -> None:
    assert as_text(key, value) == text


class Named:
    def __str__(self) -> str:
        return "1"


@pytest.mark.parametrize("key", OPTIONS)
def test_a_value_of_another_type_is_an_error_though_its_text_is_valid(key: str) -> None:
    """What would be valid as text is not made text of a list, a set, an object or a number that is none."""
    text = OPTIONS[key].default or "name"
    names, number, is_flag = key == "forceCpuNodeNames", text.isdigit(), OPTIONS[key].domain == "0, 1"
    wrong = [None, {text}, {text: text}, iter([text]), text.encode(), Named(), 1.0, [Named()], [[text]], [1]]
    wrong += [] if names else [[text], (text,)]
    wrong += [] if number and is_flag else [True, False]
    wrong += [1] if names or key == "tuningTable" else []
    for value in wrong:
        with pytest.raises(OptionError) as raised:
            as_text(key, value)
        assert key in str(raised.value) and type(value).__name__ in str(raised.value)
        with pytest.raises(OptionError):
            set_default_options(**{key: value})


def test_an_unknown_key_is_told_before_its_value_is_looked_at() -> None:
    with pytest.raises(OptionError, match=r"unknown option 'deviceID'.*did you mean 'deviceId'"):
        as_text("deviceID", [1])
