"""A context that was made for another adapter, other options or another version, or of other weights: it is compiled again, or an
error says what is wrong. It is never taken for what it is not."""

from __future__ import annotations

import gc
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest

import onnxruntime_ep_wgpu as webgpu_ep
from onnxruntime_ep_wgpu import version
from onnxruntime_ep_wgpu.device import adapters
from onnxruntime_ep_wgpu.errors import ModelError, UnsupportedError
from onnxruntime_ep_wgpu.kept import entry, folder
from onnxruntime_ep_wgpu.plugin.callbacks import held
from onnxruntime_ep_wgpu.plugin.context.build_key import BuildKey
from onnxruntime_ep_wgpu.plugin.context.compatible import (
    NOT_APPLICABLE,
    OPTIMAL,
    PREFER_RECOMPILATION,
    UNSUPPORTED,
    compatibility,
)
from onnxruntime_ep_wgpu.plugin.node import ComputeInfo
from onnxruntime_ep_wgpu.program.settings import DEFAULT
from onnxruntime_ep_wgpu.program.target import F16, Target
from onnxruntime_ep_wgpu.runtime.product_types import matrix_types
from tests import provider
from tests.links import in_a_cache
from tests.plugin import models

from .compiling import (
    compile_model,
    compiled_beside,
    contexts_in,
    touch,
    what_was_compiled,
    wide,
    wide_reference,
)

F = np.float32
X = np.random.default_rng(6).standard_normal((5, 8)).astype(F)


def check(session: Any, compiled_again: bool) -> None:
    np.testing.assert_allclose(session.run(None, {"x": X})[0], wide_reference(X), rtol=1e-4, atol=1e-5)
    assert bool(what_was_compiled(session)) == compiled_again


# ---- made for something else


def test_other_options_compile_it_again(tmp_path: Path) -> None:
    compiled = compiled_beside(tmp_path, wide())
    check(webgpu_ep.session(compiled), False)
    check(webgpu_ep.session(compiled, validationMode="full"), True)


def test_another_version_compiles_it_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = compiled_beside(tmp_path, wide())
    monkeypatch.setattr(version, "VERSION", "0.1.1")
    check(webgpu_ep.session(compiled), True)


def test_another_adapter_compiles_it_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = BuildKey.of.__func__

    def elsewhere(cls: type[BuildKey], target: Target, settings: Any) -> BuildKey:
        found = original(cls, replace(target, name="another adapter"), settings)
        assert isinstance(found, BuildKey)
        return found

    with monkeypatch.context() as patch:
        patch.setattr(BuildKey, "of", classmethod(elsewhere))
        compiled = compiled_beside(tmp_path, wide())
    check(webgpu_ep.session(compiled), True)


def test_what_is_compiled_again_is_kept_in_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(folder.VARIABLE, str(tmp_path / "cache"))
    compiled = compiled_beside(tmp_path, wide())
    check(webgpu_ep.session(compiled, validationMode="full"), True)
    check(webgpu_ep.session(compiled, validationMode="full"), False)
    other = tmp_path / "other"
    other.mkdir()
    different = compiled_beside(other, wide(1))
    session = webgpu_ep.session(different, validationMode="full")
    np.testing.assert_allclose(session.run(None, {"x": X})[0], wide_reference(X, 1), rtol=1e-4, atol=1e-5)


def test_an_error_says_for_what_it_was_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The graph cannot be compiled here."""
    compiled = compiled_beside(tmp_path, wide())

    def refuse(*_: Any, **__: Any) -> Any:
        raise UnsupportedError("no kernel")

    from onnxruntime_ep_wgpu.plugin.compiling import Compiling

    monkeypatch.setattr(Compiling, "compile", refuse)
    monkeypatch.setattr(version, "VERSION", "7.7")
    with pytest.raises(
        UnsupportedError, match=r"was made for version 0\.1\.0 .* instead of 7\.7 .* cannot be compiled .* no kernel"
    ):
        webgpu_ep.session(compiled)


def build_key(**changes: Any) -> BuildKey:
    return replace(BuildKey.of(Target(), DEFAULT), **changes)


def test_what_differs_is_named() -> None:
    now = build_key()
    assert not now.differs(build_key())
    assert BuildKey.read(now.text()) == now
    assert "version 0.0.9 of this package" in build_key(version="0.0.9").differs(now)
    assert "the adapter 'GPU' instead of 'web-baseline'" in build_key(adapter="GPU", target="0").differs(now)
    assert "same adapter with other limits" in BuildKey.of(Target(features=frozenset({F16})), DEFAULT).differs(now)
    other = build_key(options={**now.options, "validationMode": "True"})
    assert other.differs(now) == "the option validationMode=True instead of False"


@pytest.mark.parametrize("text", ["", "{}", "[]", "null", '{"version": 1}', build_key().text()[:-1]])
def test_what_says_nothing_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        BuildKey.read(text)
    assert compatibility(text, adapters()) == UNSUPPORTED


@pytest.mark.skipif(
    not hasattr(ort.capi._pybind_state, "get_compatibility_info_from_model"), reason="Python has no function for it yet"
)
def test_onnx_runtime_is_told_whether_a_compiled_model_suits(tmp_path: Path) -> None:
    compiled = compiled_beside(tmp_path, wide())
    devices = [provider.devices("ours")[0]]
    name = "ep_compatibility_info.WebGpuExecutionProvider"
    (info,) = [it.value for it in onnx.load(compiled).metadata_props if it.key == name]
    told = ort.capi._pybind_state
    assert told.get_compatibility_info_from_model(str(compiled), "WebGpuExecutionProvider") == info
    kinds = told.OrtCompiledModelCompatibility
    other = replace(BuildKey.read(info), version="0.0.9").text()
    for text, kind in (
        (info, kinds.EP_SUPPORTED_OPTIMAL),
        (other, kinds.EP_SUPPORTED_PREFER_RECOMPILATION),
        ("anything", kinds.EP_UNSUPPORTED),
    ):
        assert told.get_model_compatibility_for_ep_devices(devices, text) == kind


def test_a_model_suits_by_version_and_adapter() -> None:
    own = BuildKey.of(adapters()[0].target(), DEFAULT)
    assert compatibility(own.text(), adapters()[:1]) == OPTIMAL
    assert compatibility(replace(own, options={}).text(), adapters()[:1]) == OPTIMAL
    assert compatibility(replace(own, target="0").text(), adapters()[:1]) == PREFER_RECOMPILATION
    assert compatibility(replace(own, formats="0.0").text(), adapters()[:1]) == PREFER_RECOMPILATION
    assert compatibility(replace(own, library="other").text(), adapters()[:1]) == PREFER_RECOMPILATION
    first = {name: it for name, it in own.as_json().items() if name != "library"}  # as version 1 of the format has it
    assert compatibility(json.dumps(first | {"formats": "1.1.9"}), adapters()[:1]) == PREFER_RECOMPILATION
    assert compatibility(own.text(), []) == NOT_APPLICABLE


def test_a_session_takes_the_library_that_its_model_was_compiled_for(tmp_path: Path) -> None:
    compiled = compiled_beside(tmp_path, wide())
    assert not matrix_types(str(compiled))
    model = onnx.load(compiled)
    (info,) = [it for it in model.metadata_props if it.key.startswith("ep_compatibility_info.")]
    info.value = replace(BuildKey.read(info.value), library="dawn").text()
    assert matrix_types(model.SerializeToString()) == {"f16", "i8"}
    info.value = '{"version": "9.0", "library": "dawn", "more": 1}'  # of another version of this package
    assert matrix_types(model.SerializeToString()) == {"f16", "i8"}
    for text in ("[]", "", "[" * 200_000, '{"version": "9.0"}', '{"library": ["dawn"]}'):
        info.value = text
        assert not matrix_types(model.SerializeToString())


# ---- made by somebody else


def indices_are_tested(session: Any) -> bool:
    """Whether the kernels of the only group of the newest session test every index."""
    *_, info = [it for it in held.values() if isinstance(it, ComputeInfo)]
    del session
    return bool(info.group._live.executable.settings.bounds_checks)


def test_kernels_of_somebody_else_are_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are text that anybody may have written. What this user compiled the cache knows; an option trusts others."""
    monkeypatch.setenv(folder.VARIABLE, str(tmp_path / "cache"))
    compiled = compiled_beside(tmp_path, wide())
    gc.collect()
    assert not indices_are_tested(webgpu_ep.session(compiled))
    monkeypatch.setenv(folder.VARIABLE, str(tmp_path / "of_another_user"))
    gc.collect()
    session = webgpu_ep.session(compiled)
    assert indices_are_tested(session)
    check(session, False)
    del session
    gc.collect()
    assert not indices_are_tested(webgpu_ep.session(compiled, enableRobustness=False))


# ---- weights that are not what they were


def test_a_copy_of_the_model_is_as_good(tmp_path: Path) -> None:
    """It has another time: the digests of the weights are compared."""
    compiled = compiled_beside(tmp_path, wide())
    touch(tmp_path / "model.onnx")
    check(webgpu_ep.session(compiled), False)


def test_a_model_that_is_gone_is_named(tmp_path: Path) -> None:
    compiled = compiled_beside(tmp_path, wide())
    (tmp_path / "model.onnx").unlink()
    build_key = r"compiled for version 0\.1\.0 of this package, the adapter '.+' and the options .*validationMode=False"
    with pytest.raises(
        ModelError,
        match=rf"weights are in 'model\.onnx', which cannot be read .* compile the model again.* {build_key}",
    ):
        webgpu_ep.session(compiled)


def changed_weight(data: bytes) -> bytes:
    at = data.index(onnx.load_from_string(wide()).graph.initializer[0].raw_data) + 77
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


@pytest.mark.parametrize(
    "change",
    [changed_weight, lambda it: it[:5000], lambda _: wide(1), lambda it: b"\0" + it],
    ids=["bit", "cut", "other", "moved"],
)
def test_weights_that_changed_are_refused(tmp_path: Path, change: Callable[[bytes], bytes]) -> None:
    compiled = compiled_beside(tmp_path, wide())
    path = tmp_path / "model.onnx"
    path.write_bytes(change(path.read_bytes()))
    touch(path)
    with pytest.raises(ModelError, match=r"the weight 'w', 9600 bytes at byte \d+ of .*model\.onnx, (differs|cannot)"):
        webgpu_ep.session(compiled)


# ---- contexts that are not what they were


def test_a_context_of_another_group_is_refused(tmp_path: Path) -> None:
    compiled = compiled_beside(tmp_path, models.chain(), forceCpuNodeNames="relu")
    first, second = (tmp_path / f"model_ctx_{k}.wgpucontext" for k in range(2))
    content = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(content)
    with pytest.raises(ModelError, match="it differs from the one at compilation"):
        webgpu_ep.session(compiled)


def test_a_context_of_another_format_is_not_called_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as newer:
        newer.setenv(folder.VARIABLE, "off")
        newer.setattr(entry, "FORMAT", entry.FORMAT + 1)
        compiled = compiled_beside(tmp_path, models.chain())
    with pytest.raises(
        ModelError, match=r"is from another version of this package: its format is 2, .*; compile .* again$"
    ):
        webgpu_ep.session(compiled)


@pytest.mark.parametrize("change", [lambda it: it[:-4], lambda it: b"A" + it[1:], lambda it: b"*" + it, lambda _: b""])
def test_an_embedded_context_that_changed_is_refused(tmp_path: Path, change: Callable[[bytes], bytes]) -> None:
    model = onnx.load(compiled_beside(tmp_path, models.chain(), embedded=True))
    for it in model.graph.node[0].attribute:
        if it.name == "ep_cache_context":
            it.s = change(it.s)
    with pytest.raises(ModelError, match=r"the context .* is damaged"):
        webgpu_ep.session(model.SerializeToString())


def test_either_name_of_the_provider_opens_one(tmp_path: Path) -> None:
    compiled = compiled_beside(tmp_path, wide())
    for alias in (False, True):
        session = provider.open_session(compiled, "ours", alias=alias)
        np.testing.assert_allclose(session.run(None, {"x": X})[0], wide_reference(X), rtol=1e-4, atol=1e-5)


def test_a_context_that_is_gone_is_named(tmp_path: Path) -> None:
    compiled = compiled_beside(tmp_path, models.chain())
    (tmp_path / "model_ctx_0.wgpucontext").unlink()
    with pytest.raises(ModelError, match=r"is in 'model_ctx_0\.wgpucontext', which cannot be read"):
        webgpu_ep.session(compiled)


def test_a_context_of_somebody_else_is_not_ours(tmp_path: Path) -> None:
    compiled = compiled_beside(tmp_path, models.chain(), embedded=True)
    model = onnx.load(compiled)
    for it in model.graph.node[0].attribute:
        if it.name == "source":
            it.s = b"WebGpuExecutionProvider"
    with pytest.raises(Exception, match=r"EPContext"):
        webgpu_ep.session(model.SerializeToString())


# ---- paths


def renamed(compiled: Path, location: str) -> None:
    model = onnx.load(compiled)
    for it in model.graph.node[0].attribute:
        if it.name == "ep_cache_context":
            it.s = location.encode()
    onnx.save(model, compiled)


@pytest.mark.parametrize(
    "location", ["../model_ctx_0.wgpucontext", "{folder}/model_ctx_0.wgpucontext", "", "link", "pipe", "."]
)
def test_a_context_lies_in_the_folder_of_its_model(tmp_path: Path, location: str) -> None:
    (tmp_path / "models").mkdir()
    compiled = compiled_beside(tmp_path / "models", models.chain())
    context = tmp_path / "models" / "model_ctx_0.wgpucontext"
    shutil.copy(context, tmp_path)
    (tmp_path / "models" / "link").symlink_to(tmp_path / context.name)
    os.mkfifo(tmp_path / "models" / "pipe")
    renamed(compiled, location.format(folder=tmp_path / "models"))
    with pytest.raises(ModelError, match=r"the context of '.*' is in "):
        webgpu_ep.session(compiled)


@pytest.mark.parametrize("location", ["../model.onnx", "link.onnx", "pipe"])
def test_weights_lie_in_the_folder_of_the_compiled_model(tmp_path: Path, location: str) -> None:
    """Whoever wrote the context."""
    from .rewritten import rewrite

    (tmp_path / "models").mkdir()
    compiled = compiled_beside(tmp_path / "models", wide())
    shutil.copy(tmp_path / "models" / "model.onnx", tmp_path)
    (tmp_path / "models" / "link.onnx").symlink_to(tmp_path / "model.onnx")
    os.mkfifo(tmp_path / "models" / "pipe")

    def elsewhere(content: dict[str, Any]) -> None:
        content["files"][0][0] = location

    rewrite(compiled, elsewhere)
    with pytest.raises(ModelError, match=r"a weight is in .*, which (leads out|is not a regular file)"):
        webgpu_ep.session(compiled)


def test_folders_of_links_work(tmp_path: Path) -> None:
    """As the cache of Hugging Face has them: the files of a model are links to others, so weights are copied."""
    (tmp_path / "models").mkdir()
    path = tmp_path / "models" / "model.onnx"
    path.write_bytes(wide())
    in_a_cache(tmp_path / "models")
    compile_model(path)
    check(webgpu_ep.session(tmp_path / "models" / "model_ctx.onnx"), False)
    assert len(contexts_in(tmp_path / "models" / "model_ctx.onnx")) == 1
