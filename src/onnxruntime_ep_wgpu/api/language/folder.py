"""Reads a model folder in the layout of onnxruntime-genai, with genai_config.json, or of Hugging Face's optimum.

In: a path. Out: `ModelFolder`. Raises ModelError with the file that is missing or incomplete, or with the field of a wrong
value.
"""

from __future__ import annotations

import os
from pathlib import Path

from ...errors import InputError, ModelError, cut
from ...records import dataclass
from ..folder_files import Fields, fields_inside, file_inside, text_inside

_MODELS = ("model.onnx", "onnx/model.onnx", "decoder_with_past_model.onnx", "decoder_model_merged.onnx")
LONGEST = 8192
"""Default limit of cache rows."""
_GENAI, _CONFIG, _TOKENS, _TEMPLATE = "genai_config.json", "config.json", "tokenizer_config.json", "chat_template.jinja"


@dataclass(frozen=True)
class Template:
    """A chat template and the file that contains it."""

    text: str
    path: Path


@dataclass(frozen=True)
class ModelFolder:
    """The settings of a folder.

    `end` are the ids that end a text. `context` is the longest sequence that the model supports. `head_size` is the number of
    elements of a key or value, None if no configuration has it."""

    path: Path
    model: Path
    end: tuple[int, ...]
    context: int
    head_size: int | None
    template: Template | None
    tokens: dict[str, str]  # special tokens by their names in templates

    @property
    def tokenizer(self) -> Path:
        """The path of tokenizer.json. Raises ModelError if it is missing."""
        found = file_inside(self.path, "tokenizer.json")
        if found is None:
            raise ModelError(
                f"{self.path / 'tokenizer.json'} is missing: export the model with its tokenizer, or pass ids"
            )
        return found


def open_folder(path: str | Path) -> ModelFolder:
    """Reads the configuration of a model folder. Raises ModelError, and InputError if the argument is not a path."""
    if not isinstance(path, str | os.PathLike):
        raise InputError(f"folder={cut(path)}: pass the path of a folder with a model")
    path = Path(path)
    if not path.is_dir():
        raise ModelError(f"{path} is not a folder: pass the folder with model.onnx, tokenizer.json and a configuration")
    genai = fields_inside(path, _GENAI)
    if genai is not None:
        described = genai.object("model")
        decoder = described.object("decoder")
        model = decoder.file("filename", "model.onnx")
        end, context = described.ids("eos_token_id"), described.count("context_length", 1)
        size = decoder.count("head_size", 1)
    else:
        found = fields_inside(path, _CONFIG)
        if found is None:
            raise ModelError(f"{path} has neither {_GENAI} nor {_CONFIG}, which specify the end of a text")
        model = _model(path)
        end, more = found.ids("eos_token_id"), fields_inside(path, "generation_config.json")
        if more is not None:
            own = more.ids("eos_token_id")
            end = end if own is None else own
        context = found.count("max_position_embeddings", 1) or found.count("n_positions", 1)
        size = found.count("head_dim", 1) or _head_size(found)
    settings = fields_inside(path, _TOKENS)
    template, tokens = _template(path, settings), _tokens(settings) if settings is not None else {}
    return ModelFolder(path, model, end or (), context or LONGEST, size, template, tokens)


def _model(path: Path) -> Path:
    for name in _MODELS:
        if (model := file_inside(path, name)) is not None:
            return model
    raise ModelError(f"{path / _MODELS[0]} is missing")


def _head_size(config: Fields) -> int | None:
    hidden, heads = config.count("hidden_size", 1), config.count("num_attention_heads", 1)
    if hidden is None or heads is None:
        return None
    if hidden < heads:
        raise config.wrong("hidden_size", f"an integer of at least num_attention_heads, {heads}")
    return hidden // heads


def _template(path: Path, settings: Fields | None) -> Template | None:
    """Returns the chat template, from its own file or from the tokenizer's configuration. Of several, the default one."""
    own = text_inside(path, _TEMPLATE)
    if own is not None:
        return Template(own, path / _TEMPLATE)
    if settings is None:
        return None
    if isinstance(settings.values.get("chat_template"), list):
        named = {it.text("name"): it.text("template") for it in settings.objects("chat_template")}
        text = named.get("default")
    else:
        text = settings.text("chat_template")
    return None if text is None else Template(text, settings.path)


def _tokens(settings: Fields) -> dict[str, str]:
    found = {}
    for name in ("bos_token", "eos_token", "pad_token", "unk_token"):
        is_object = isinstance(settings.values.get(name), dict)
        found[name] = settings.object(name).text("content") if is_object else settings.text(name)
    return {name: it for name, it in found.items() if it}
