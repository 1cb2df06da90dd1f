"""Options reach the provider from every place that can set them, and a wrong one reaches the user as an error."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

import onnxruntime_ep_wgpu as webgpu_ep
from onnxruntime_ep_wgpu.errors import OptionError
from onnxruntime_ep_wgpu.options import Layer, parse, program_defaults
from onnxruntime_ep_wgpu.plugin import watch
from onnxruntime_ep_wgpu.plugin.sources import options_under
from tests import patience

from . import models
from .fakes import Fake

MAIN, ALIAS = "ep.webgpuexecutionprovider.", "ep.wgpuexecutionprovider."


@pytest.fixture(autouse=True)
def _no_defaults() -> Iterator[None]:
    yield
    webgpu_ep.set_default_options()


def stock(model: bytes, entries: dict[str, str] | None = None, options: dict[str, str] | None = None) -> Any:
    """A session made by ONNX Runtime alone, with its retry on the CPU left on."""
    webgpu_ep.register()
    settings = ort.SessionOptions()
    settings.log_severity_level = 4
    for key, text in (entries or {}).items():
        settings.add_session_config_entry(key, text)
    devices = [it for it in ort.get_ep_devices() if it.ep_name == webgpu_ep.get_ep_name()]
    settings.add_provider_for_devices(devices[:1], options or {})
    return ort.InferenceSession(model, settings)


def options_in_use() -> Any:
    state = watch.live()[-1].state
    assert state is not None
    return state.options


# Where options come from


@pytest.mark.parametrize("prefix", [MAIN, ALIAS])
def test_a_session_configuration_entry_sets_an_option(fake: Fake, prefix: str) -> None:
    kept = stock(models.square(), {f"{prefix}validationMode": "disabled"})
    assert options_in_use()["validationMode"] == "disabled"
    del kept


def test_one_value_under_both_prefixes_is_fine_and_two_are_an_error(fake: Fake) -> None:
    kept = stock(models.square(), {f"{MAIN}validationMode": "disabled", f"{ALIAS}validationMode": "disabled"})
    assert options_in_use()["validationMode"] == "disabled"
    del kept
    with pytest.raises(Exception, match=r"'validationMode' is given twice: .*'disabled' and .*'basic'"):
        stock(models.square(), {f"{MAIN}validationMode": "disabled", f"{ALIAS}validationMode": "basic"})


def test_entries_of_others_are_not_options() -> None:
    entries = {"ep.cudaexecutionprovider.validationMode": "loud", f"{ALIAS}enableInt64": "1", "session.x": "1"}
    assert options_under(entries, [MAIN, ALIAS]) == {"enableInt64": "1"}


def test_defaults_of_the_program_hold_for_sessions_that_say_nothing(fake: Fake) -> None:
    webgpu_ep.set_default_options(validationMode="wgpuOnly", enableRobustness=True)
    kept = stock(models.square(), options={"enableRobustness": "0"})
    assert options_in_use()["validationMode"] == "wgpuOnly"
    assert options_in_use()["enableRobustness"] is False
    webgpu_ep.set_default_options()
    kept = stock(models.square())
    assert options_in_use()["validationMode"] == "basic"
    del kept


def test_wrong_defaults_are_refused_and_change_nothing() -> None:
    webgpu_ep.set_default_options(validationMode="full")
    with pytest.raises(OptionError, match=r"'validationMode' \(set_default_options\): 'loud' is not valid"):
        webgpu_ep.set_default_options(validationMode="loud")
    with pytest.raises(OptionError, match=r"unknown option 'validation' \(set_default_options\)"):
        webgpu_ep.set_default_options(validation="full")
    assert program_defaults().given == {"validationMode": "full"}


def test_a_session_wins_over_the_program_and_the_program_over_the_environment() -> None:
    environment = Layer("environment", {"deviceId": "1", "validationMode": "full", "enableInt64": "0"})
    program = Layer("program", {"deviceId": "2", "validationMode": "wgpuOnly"})
    options = parse({"deviceId": "3"}, [environment, program])
    assert (options["deviceId"], options["validationMode"], options["enableInt64"]) == (3, "wgpuOnly", False)


def test_a_wrong_value_is_an_error_even_where_another_wins() -> None:
    with pytest.raises(OptionError, match=r"'deviceId' \(environment\): '0x1' is not valid"):
        parse({"deviceId": "3"}, [Layer("environment", {"deviceId": "0x1"})])


ENVIRONMENT = """
import json, sys
import onnxruntime_ep_wgpu as webgpu_ep
from onnxruntime_ep_wgpu.plugin import watch
from tests.plugin import models
from tests.plugin.c_api import Runtime

entries, options = map(json.loads, sys.argv[1:])
runtime = Runtime(entries)
runtime.register("registration", webgpu_ep.get_library_path())
try:
    session = runtime.session(models.square(), runtime.devices(webgpu_ep.get_ep_name())[0], options)
    values = watch.live()[-1].state.options
    print(json.dumps([values["validationMode"], values["maxNumPendingDispatches"]]))
except RuntimeError as error:
    print(json.dumps(str(error)))
"""


def in_environment(entries: dict[str, str], **options: str) -> Any:
    """What a C program's session uses that put `entries` into ONNX Runtime's environment."""
    command = [sys.executable, "-c", ENVIRONMENT, json.dumps(entries), json.dumps(options)]
    result = patience.run(command, check=True, cwd=Path(__file__).parents[2])
    return json.loads(result.stdout.splitlines()[-1])


def test_the_environment_gives_defaults() -> None:
    entries = {
        "ep_factory.WebGpuExecutionProvider.validationMode": "full",
        "ep_factory.WebGpuExecutionProvider.maxNumPendingDispatches": "7",
        "ep_factory.OtherExecutionProvider.validationMode": "loud",
    }
    assert in_environment(entries) == ["full", 7]
    assert in_environment(entries, validationMode="disabled") == ["disabled", 7]


def test_a_wrong_entry_of_the_environment_is_named() -> None:
    error = in_environment({"ep_factory.WebGpuExecutionProvider.enableZeroBuffer": "1"})
    assert "unknown option 'enableZeroBuffer' (environment configuration) with the value '1'" in error


# Errors reach the user


def _body(name: str, values: list[float]) -> onnx.GraphProto:
    constant = helper.make_node("Constant", [], [name], value=helper.make_tensor("v", 1, [2], values))
    return helper.make_graph([constant], name, [], [helper.make_tensor_value_info(name, 1, [2])])


def _only_if() -> bytes:
    node = helper.make_node(
        "If", ["c"], ["y"], "choose", then_branch=_body("one", [1, 2]), else_branch=_body("two", [3, 4])
    )
    return models.model([node], [("c", TensorProto.BOOL, [])], [("y", TensorProto.FLOAT, [2])])


def _no_node() -> bytes:
    constant = helper.make_node("Constant", [], ["y"], "c", value=helper.make_tensor("v", 1, [2], [1.0, 2.0]))
    return models.model([constant], [], [("y", TensorProto.FLOAT, [2])])


def _unsupported() -> bytes:
    node = helper.make_node("NonZero", ["x"], ["y"], "nonzero")
    return models.model([node], [("x", TensorProto.FLOAT, ["N", 8])], [("y", TensorProto.INT64, [2, "M"])])


UNCLAIMED = {"only If": _only_if(), "no node": _no_node(), "unsupported": _unsupported()}


@pytest.mark.parametrize("name", [*UNCLAIMED, "square"])
def test_a_wrong_option_is_an_error_of_the_stock_session(name: str) -> None:
    """Also where no node would run here, and though ONNX Runtime tries again on the CPU after some errors."""
    model = UNCLAIMED.get(name) or models.square()
    with pytest.raises(Exception, match="OptionError: option 'validationMode': 'loud' is not valid"):
        stock(model, options={"validationMode": "loud"})


@pytest.mark.parametrize("name", UNCLAIMED)
def test_models_that_run_elsewhere_make_sessions(name: str) -> None:
    assert "CPUExecutionProvider" in stock(UNCLAIMED[name]).get_providers()


@pytest.mark.parametrize("value", ["12x", "0x1", "4097", "-1", "1e3", "\u0661"])
def test_numbers_that_are_wrong_reach_the_user(value: str) -> None:
    with pytest.raises(Exception) as raised:
        stock(models.square(), options={"maxNumPendingDispatches": value})
    message = str(raised.value)
    assert f"option 'maxNumPendingDispatches': {value!r} is not valid; valid: an integer, 1 to 4096" in message


def test_an_unknown_option_of_a_configuration_entry_reaches_the_user() -> None:
    with pytest.raises(Exception, match=r"unknown option 'validationMod' .*did you mean 'validationMode'"):
        stock(models.square(), {f"{ALIAS}validationMod": "basic"})


def test_a_right_option_makes_a_session_that_runs() -> None:
    x = np.ones((2, 8), np.float32)
    np.testing.assert_array_equal(stock(models.square(), options={"validationMode": "full"}).run(None, {"x": x})[0], x)
