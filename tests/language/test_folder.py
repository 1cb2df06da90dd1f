"""Folders of models that a stranger made: nothing outside is opened, and a field of the wrong type is named."""

from __future__ import annotations

import copy
import json
import os
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from onnxruntime_ep_wgpu.api.language.folder import open_folder
from onnxruntime_ep_wgpu.api.language.text import Tokenizer
from onnxruntime_ep_wgpu.errors import InputError, ModelError

from .models import Decoder, write_beside

GENAI = {
    "model": {
        "eos_token_id": [1, 2], "context_length": 128, "decoder": {"filename": "model.onnx", "head_size": 16},
    }
}  # fmt: skip
CONFIG = {
    "eos_token_id": 2,
    "max_position_embeddings": 128,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "head_dim": None,
}
TOKENS = {"bos_token": "<s>", "eos_token": {"content": "</s>"}, "chat_template": [{"name": "default", "template": "a"}]}
FILES: dict[str, dict[str, Any]] = {
    "genai_config.json": GENAI, "config.json": CONFIG, "generation_config.json": {"eos_token_id": [2]},
    "tokenizer_config.json": TOKENS,
}  # fmt: skip
NO_OBJECT = (5, 5.5, True, "x", [], [5])
NO_TEXT = (5, 5.5, True, [], [5], {}, {"a": 5})
NO_COUNT = (0, -1, 5.5, True, "5", "x" * 5000, [], {}, 1e300, 2**63)
NO_IDS = (-1, 5.5, True, "5", [5, "5"], [5, None], [True], [[5]], {})
FIELDS = {
    "genai_config.json: model": NO_OBJECT, "genai_config.json: model.decoder": NO_OBJECT,
    "genai_config.json: model.decoder.filename": (*NO_TEXT, "", "none.onnx", "x" * 5000, "a\0b", "\ud800", ".", "folder"),
    "genai_config.json: model.decoder.head_size": NO_COUNT, "genai_config.json: model.context_length": NO_COUNT,
    "genai_config.json: model.eos_token_id": NO_IDS, "config.json: eos_token_id": NO_IDS,
    "config.json: max_position_embeddings": NO_COUNT, "config.json: head_dim": NO_COUNT,
    "config.json: hidden_size": (*NO_COUNT, 3), "config.json: num_attention_heads": NO_COUNT,
    "generation_config.json: eos_token_id": NO_IDS, "tokenizer_config.json: bos_token": (5, 5.5, True, [], ["x"]),
    "tokenizer_config.json: eos_token.content": NO_TEXT, "tokenizer_config.json: chat_template": (5, 5.5, True, {}, [5], ["x"]),
    "tokenizer_config.json: chat_template[0].name": NO_TEXT, "tokenizer_config.json: chat_template[0].template": NO_TEXT,
}  # fmt: skip


def write_folder(folder: Path, genai: bool = True, **changed: Any) -> Path:
    """A folder whose model is empty."""
    (folder / "folder").mkdir(parents=True, exist_ok=True)
    (folder / "model.onnx").write_bytes(b"")
    for name, said in FILES.items():
        path = folder / name
        path.unlink(missing_ok=True)
        if genai or name != "genai_config.json":
            path.write_text(json.dumps(changed.get(name, said)))
    return folder


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every (holder, key) in a value of JSON."""
    for key, inner in [*value.items()] if isinstance(value, dict) else [*enumerate(value)]:
        yield value, key
        if isinstance(inner, dict | list):
            yield from places(inner)


def put(said: Any, field: str, value: Any) -> Any:
    said = copy.deepcopy(said)
    holder, keys = said, re.findall(r"[^.\[\]]+", field)
    for key in keys[:-1]:
        holder = holder[int(key) if isinstance(holder, list) else key]
    holder[keys[-1]] = value
    return said


@pytest.mark.parametrize("field", FIELDS)
def test_a_field_of_the_wrong_type_is_named(field: str, tmp_path: Path) -> None:
    file, name = field.split(": ")
    for value in FIELDS[field]:
        folder = write_folder(tmp_path, genai=file != "config.json" and "generation" not in file)
        (folder / file).write_text(json.dumps(put(FILES[file], name, value)))
        with pytest.raises(ModelError, match=re.escape(f"{folder / file}: {name}")) as error:
            open_folder(folder)
        assert len(str(error.value)) < 600


@pytest.mark.parametrize("genai", [True, False])
def test_null_is_as_good_as_nothing(genai: bool, tmp_path: Path) -> None:
    whole = open_folder(write_folder(tmp_path, genai))
    assert (whole.end, whole.context, whole.head_size) == ((1, 2) if genai else (2,), 128, 16)
    assert (
        whole.template is not None
        and whole.template.text == "a"
        and whole.tokens == {"bos_token": "<s>", "eos_token": "</s>"}
    )
    for file, said in FILES.items():
        (tmp_path / file).write_text(json.dumps(dict.fromkeys(said)))
    if not genai:
        (tmp_path / "genai_config.json").unlink()
    empty = open_folder(tmp_path)
    assert (empty.end, empty.context, empty.head_size, empty.template, empty.tokens) == ((), 8192, None, None, {})


@pytest.mark.parametrize(
    "name", ["../other/model.onnx", "a/../../other/model.onnx", "folder/../model.onnx", "ABSOLUTE"]
)
def test_a_configuration_leads_out_of_no_folder(name: str, tmp_path: Path) -> None:
    other = write_folder(tmp_path / "other")
    folder = write_folder(tmp_path / "model")
    said = put(GENAI, "model.decoder.filename", str(other / "model.onnx") if name == "ABSOLUTE" else name)
    (folder / "genai_config.json").write_text(json.dumps(said))
    with pytest.raises(ModelError, match=r"genai_config\.json: model\.decoder\.filename: .* leads out of the folder"):
        open_folder(folder)


@pytest.mark.parametrize("name", ["model.onnx", "tokenizer.json", "chat_template.jinja", *FILES])
def test_a_link_leads_out_of_no_folder(name: str, tmp_path: Path) -> None:
    folder, secret = (
        write_folder(tmp_path / "model", genai="generation" not in name and name != "config.json"),
        tmp_path / "s",
    )
    secret.write_text("{}")
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to(secret)
    with pytest.raises(
        ModelError, match=re.escape(f"{folder / name} is a link to {secret}, which is out of the folder")
    ):
        _ = open_folder(folder).tokenizer
    (folder / name).unlink()
    (folder / name).symlink_to(name)  # in a circle
    with pytest.raises(ModelError):
        _ = open_folder(folder).tokenizer
        raise ModelError("a file that need not be there")


def test_links_within_the_folder_and_its_cache_are_followed(tmp_path: Path) -> None:
    """As Hugging Face's cache has them: files are links to `blobs` beside the snapshots."""
    folder = write_folder(tmp_path / "models--a" / "snapshots" / "1a2b")
    blobs = tmp_path / "models--a" / "blobs"
    blobs.mkdir()
    for number, path in enumerate([it for it in folder.iterdir() if it.is_file()]):
        path.rename(blobs / f"{number}")
        path.symlink_to(Path("..") / ".." / "blobs" / f"{number}")
    (folder / "folder" / "inner.onnx").symlink_to(Path("..") / "model.onnx")
    assert open_folder(folder).model == folder / "model.onnx"
    (tmp_path / "link").symlink_to(folder)
    said = put(GENAI, "model.decoder.filename", "folder/inner.onnx")
    (folder / "genai_config.json").unlink()
    (folder / "genai_config.json").write_text(json.dumps(said))
    assert open_folder(tmp_path / "link").model == tmp_path / "link" / "folder" / "inner.onnx"


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\xfe",
        b"{",
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b"\xef\xbb\xbf{}",
        b"5",
        b"null",
        b'"x"',
        b"9" * 5000,
        b"\0",
    ],
    ids=lambda it: repr(it[:8]),
)
def test_a_file_that_is_no_object_of_json_is_named(content: bytes, file: str, tmp_path: Path) -> None:
    folder = write_folder(tmp_path, genai=file != "config.json" and "generation" not in file)
    (folder / file).write_bytes(content)
    with pytest.raises(ModelError, match=re.escape(str(folder / file))):
        open_folder(folder)


def test_what_is_no_file_is_as_good_as_nothing(tmp_path: Path) -> None:
    folder = write_folder(tmp_path)
    for name, make in (("chat_template.jinja", Path.mkdir), ("tokenizer_config.json", os.mkfifo)):
        (folder / name).unlink(missing_ok=True)
        make(folder / name)
    assert open_folder(folder).template is None


@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=[pytest.mark.exhaustive] * (seed > 0)) for seed in range(20)]
)
def test_changed_configurations_are_read_or_refused(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    values: list[Any] = [
        None,
        True,
        0,
        -1,
        2**70,
        5.5,
        1e300,
        "",
        "model.onnx",
        "../x",
        "\ud800",
        "x" * 5000,
        [],
        [1],
        {},
        {"a": 1},
    ]
    for _ in range(150 if seed == 0 else 500):
        folder = write_folder(tmp_path, genai=rng.random() < 0.5)
        file = rng.choice([it for it in FILES if (folder / it).exists()])
        said = copy.deepcopy(FILES[file])
        for _ in range(rng.randint(1, 3)):
            holder, key = rng.choice([*places(said)])
            holder[key] = copy.deepcopy(rng.choice(values))
        (folder / file).write_text(json.dumps(said))
        try:
            found = open_folder(folder)
        except ModelError as error:
            assert str(folder) in str(error)
        else:
            assert found.model.resolve().is_relative_to(folder.resolve())


@pytest.mark.parametrize(
    "settings",
    [
        {"padding": {"strategy": {"Fixed": 10**12}, "direction": "Right", "pad_to_multiple_of": None, "pad_id": 0,
                     "pad_type_id": 0, "pad_token": "x"}},
        {"truncation": {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0}},
        {"truncation": {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 7}},
    ],
    ids=str,
)  # fmt: skip
def test_a_tokenizer_neither_pads_nor_cuts(settings: dict[str, Any], tmp_path: Path) -> None:
    """A length that no memory holds would end the process."""
    folder = write_folder(tmp_path)
    write_beside(Decoder(layers=1), folder)
    text = "a longer text"
    expected = Tokenizer(open_folder(folder)).ids(text)
    path = folder / "tokenizer.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | settings))
    assert Tokenizer(open_folder(folder)).ids(text) == expected


@pytest.mark.parametrize(
    "model", [{"type": "WordPiece", "vocab": {}, "unk_token": "none"}, {"type": "WordLevel"}, None, 5]
)
def test_a_tokenizer_that_fails_is_named(model: Any, tmp_path: Path) -> None:
    folder = write_folder(tmp_path)
    write_beside(Decoder(layers=1), folder)
    path = folder / "tokenizer.json"
    said = json.loads(path.read_text())
    if isinstance(model, dict):
        model |= {"continuing_subword_prefix": "##", "max_input_chars_per_word": 100}
    path.write_text(json.dumps(said | {"model": model}))
    with pytest.raises(ModelError, match=re.escape(str(path))):
        Tokenizer(open_folder(folder)).ids("a text")


def test_half_of_a_character_has_no_ids(tmp_path: Path) -> None:
    folder = write_folder(tmp_path)
    write_beside(Decoder(layers=1), folder)
    with pytest.raises(InputError, match=r"half of a character, '\\ud800', at 2"):
        Tokenizer(open_folder(folder)).ids("a \ud800")
