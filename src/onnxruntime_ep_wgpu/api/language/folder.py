"""The folder of a model: onnxruntime-genai's layout, with genai_config.json, or that of Hugging Face's optimum.

In: a path. Out: `ModelFolder`. Raises ModelError that names the file that is missing or says too little.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...errors import InputError, ModelError, cut

_MODELS = ("model.onnx", "onnx/model.onnx", "decoder_with_past_model.onnx", "decoder_model_merged.onnx")
LONGEST = 8192
"""Rows of a cache when nobody says how many, at most."""


@dataclass(frozen=True)
class ModelFolder:
    """`end` are the ids after which a text ends; `context` is the longest sequence that the model was made for; `head_size` the
    elements of a key or value, None where no configuration says it."""

    path: Path
    model: Path
    end: tuple[int, ...]
    context: int
    head_size: int | None
    template: str | None
    tokens: dict[str, str]  # special ones, by the names that templates have for them

    @property
    def tokenizer(self) -> Path:
        return self.path / "tokenizer.json"


def open_folder(path: str | Path) -> ModelFolder:
    """What a folder says about its model."""
    if not isinstance(path, str | os.PathLike):
        raise InputError(f"folder={cut(path)}: pass the path of a folder with a model")
    path = Path(path)
    if not path.is_dir():
        raise ModelError(f"{path} is no folder: pass the folder with model.onnx, tokenizer.json and a configuration")
    genai = _json(path / "genai_config.json")
    settings = _json(path / "tokenizer_config.json") or {}
    if genai is not None:
        source = path / "genai_config.json"
        described = _object(source, "model", genai.get("model", {}))
        decoder = _object(source, "decoder", described.get("decoder", {}))
        model = path / decoder.get("filename", "model.onnx")
        end, context = described.get("eos_token_id"), described.get("context_length")
        size = decoder.get("head_size")
    else:
        source = path / "config.json"
        found = _json(source)
        if found is None:
            raise ModelError(f"{path} has neither genai_config.json nor config.json, which say when a text ends")
        described = found
        model = next((path / name for name in _MODELS if (path / name).is_file()), path / _MODELS[0])
        more = _json(path / "generation_config.json") or {}
        end = more.get("eos_token_id", described.get("eos_token_id"))
        context = described.get("max_position_embeddings") or described.get("n_positions")
        size = described.get("head_dim")
        if size is None:
            hidden, heads = described.get("hidden_size"), described.get("num_attention_heads")
            size = hidden // heads if isinstance(hidden, int) and isinstance(heads, int) and heads > 0 else None
    if not model.is_file():
        raise ModelError(f"{model} is missing")
    ends = tuple(end) if isinstance(end, list) else () if end is None else (end,)
    context = LONGEST if context is None else context
    if not all(_is_count(it, 0) for it in ends):
        raise ModelError(f"{source}: eos_token_id is {cut(end)}; it is an id or a list of ids")
    if not _is_count(context, 1):
        raise ModelError(f"{source}: the longest sequence is {cut(context)}; it is a number of ids from 1 on")
    if size is not None and not _is_count(size, 1):
        raise ModelError(f"{source}: a head has {cut(size)} elements; it is a number from 1 on")
    return ModelFolder(path, model, ends, context, size, _template(path, settings), _tokens(settings))


def _is_count(value: Any, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _object(path: Path, name: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ModelError(f"{path}: {name} is {cut(value)}; it is an object with names")
    return value


def _json(path: Path) -> dict[str, Any] | None:
    if not path.is_file():
        return None
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ModelError(f"{path} is no JSON: {error}") from error
    return _object(path, "what it says", found)


def _template(path: Path, settings: dict[str, Any]) -> str | None:
    """The chat template: a file of its own, or part of the tokenizer's configuration; of several the default one."""
    own = path / "chat_template.jinja"
    if own.is_file():
        return own.read_text(encoding="utf-8")
    template = settings.get("chat_template")
    if isinstance(template, list):
        named = {it.get("name"): it.get("template") for it in template if isinstance(it, dict)}
        template = named.get("default")
    if template is not None and not isinstance(template, str):
        raise ModelError(f"{path / 'tokenizer_config.json'}: chat_template is {cut(template)}; it is a text")
    return template


def _tokens(settings: dict[str, Any]) -> dict[str, str]:
    found = {name: settings.get(name) for name in ("bos_token", "eos_token", "pad_token", "unk_token")}
    texts = {name: it.get("content") if isinstance(it, dict) else it for name, it in found.items()}
    return {name: it for name, it in texts.items() if it}
