"""Answers a question about a picture with a vision encoder, a language model's embeddings, and its decoder, all on the GPU.

    python -m examples.vision_language FOLDER picture.jpg "What is this?"

FOLDER has the files of a model for transformers.js (SmolVLM, LLaVA, Qwen2-VL): vision_encoder.onnx, embed_tokens.onnx,
decoder_model_merged.onnx, tokenizer.json, and config.json with the id of the image token. The encoder's features replace the
embeddings of the image tokens on the device; keys and values stay there too.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, helper

import onnxruntime_ep_wgpu as webgpu_ep

from .encoder_decoder import likeliest, run

PICTURE = "<image>"


def filled_in(image: int, rank: int) -> bytes:
    """Returns a model that replaces the embeddings of image tokens by the rows of the features, in order.

    Inputs: ids (batch, steps), inputs_embeds, and features (..., hidden) of this rank. `image` is the id of an image token."""
    nodes = [
        helper.make_node("Equal", ["input_ids", "image"], ["is_image"]),
        helper.make_node("Cast", ["is_image"], ["ones"], to=TensorProto.INT64),
        helper.make_node("Reshape", ["ones", "flat"], ["row_of_ones"]),
        helper.make_node("CumSum", ["row_of_ones", "first"], ["counted"]),
        helper.make_node("Sub", ["counted", "one"], ["before"]),
        helper.make_node("Max", ["before", "first"], ["row"]),
        helper.make_node("Shape", ["inputs_embeds"], ["shape"]),
        helper.make_node("Shape", ["inputs_embeds"], ["hidden"], start=2),
        helper.make_node("Concat", ["flat", "hidden"], ["rows_shape"], axis=0),
        helper.make_node("Reshape", ["features", "rows_shape"], ["rows"]),
        helper.make_node("Gather", ["rows", "row"], ["picked"]),
        helper.make_node("Reshape", ["picked", "shape"], ["placed"]),
        helper.make_node("Unsqueeze", ["is_image", "last"], ["choice"]),
        helper.make_node("Where", ["choice", "placed", "inputs_embeds"], ["filled"]),
    ]
    value, real = helper.make_tensor_value_info, TensorProto.FLOAT
    constants = {"image": ([], [image]), "first": ([], [0]), "one": ([], [1]), "flat": ([1], [-1]), "last": ([1], [2])}
    graph = helper.make_graph(
        nodes,
        "filled_in",
        [
            value("input_ids", TensorProto.INT64, ["batch", "steps"]),
            value("features", real, [f"axis{k}" for k in range(rank)]),
            value("inputs_embeds", real, ["batch", "steps", "hidden"]),
        ],
        [value("filled", real, ["batch", "steps", "hidden"])],
        [helper.make_tensor(name, TensorProto.INT64, shape, it) for name, (shape, it) in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10).SerializeToString()


class VisionLanguage:
    """The models of a folder. `image` is the id that stands for one row of features."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        names = ("vision_encoder.onnx", "embed_tokens.onnx", "decoder_model_merged.onnx")
        missing = [name for name in (*names, "config.json") if not (self.folder / name).is_file()]
        if missing:
            raise FileNotFoundError(f"{self.folder} lacks {', '.join(missing)}")
        config = json.loads((self.folder / "config.json").read_text())
        self.image: int = config.get("image_token_id", config.get("image_token_index"))
        end = config.get("eos_token_id", config.get("text_config", {}).get("eos_token_id"))
        self.end = set(end if isinstance(end, list) else [end])
        self.encoder, self.embed, self.decoder = (webgpu_ep.session(str(self.folder / name)) for name in names)
        self.pick = webgpu_ep.session(likeliest())
        self.fill = webgpu_ep.session(filled_in(self.image, len(self.encoder.get_outputs()[0].shape)))

    def features(self, pixels: np.ndarray[Any, Any]) -> Any:
        """Returns the features of pixels (1, 3, height, width): an OrtValue on the device, (..., tokens, hidden)."""
        return next(iter(run(self.encoder, {self.encoder.get_inputs()[0].name: pixels}).values()))

    def ids(self, features: Any, prompt: Sequence[int], most: int = 128) -> Iterator[int]:
        """Yields the ids of the answer, including the one that ends it. `prompt` has `image` once per row of features."""
        rows = int(np.prod(features.shape()[:-1]))
        if list(prompt).count(self.image) != rows:
            raise ValueError(
                f"the prompt has {list(prompt).count(self.image)} tokens for the picture's {rows} rows of features"
            )
        ids: Any = np.array([prompt], np.int64)
        caches = {it.name: it.shape for it in self.decoder.get_inputs() if it.name.startswith("past_key_values.")}
        state: dict[str, Any] = {name: np.empty((1, it[1], 0, it[3]), np.float32) for name, it in caches.items()}
        for step in range(most):
            embeds = next(iter(run(self.embed, {"input_ids": ids}).values()))
            if step == 0:
                embeds = run(self.fill, {"input_ids": ids, "features": features, "inputs_embeds": embeds})["filled"]
            total, steps = len(prompt) + step, len(prompt) if step == 0 else 1
            state |= {
                "inputs_embeds": embeds,
                "attention_mask": np.ones((1, total), np.int64),
                "position_ids": np.arange(total - steps, total)[None],
            }
            found = run(self.decoder, state)
            ids = run(self.pick, {"logits": found.pop("logits")})["ids"]
            picked = int(ids.numpy()[0, 0])
            yield picked
            if picked in self.end:
                return
            state |= {name.replace("present", "past_key_values"): it for name, it in found.items()}


def pixels_of(path: str, side: int) -> np.ndarray[Any, Any]:
    """Returns a picture as (1, 3, side, side), from -1 to 1."""
    from PIL import Image

    picture = Image.open(path).convert("RGB").resize((side, side), Image.Resampling.BICUBIC)
    return np.ascontiguousarray((np.asarray(picture, np.float32) / 127.5 - 1).transpose(2, 0, 1)[None])


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Answers a question about a picture.")
    parser.add_argument("folder", help="with the three models")
    parser.add_argument("picture", help="any format that Pillow reads")
    parser.add_argument("question", help=f"{PICTURE} says where the picture is; before it all unless told")
    parser.add_argument("--side", type=int, default=512, help="pixels of the picture that the encoder sees")
    parser.add_argument("--most", type=int, default=128, help="ids of an answer")
    chosen = parser.parse_args(words)
    from tokenizers import Tokenizer

    model = VisionLanguage(chosen.folder)
    tokenizer = Tokenizer.from_file(str(model.folder / "tokenizer.json"))
    features = model.features(pixels_of(chosen.picture, chosen.side))
    before, _, after = chosen.question.rpartition(PICTURE)
    prompt = [
        *tokenizer.encode(before).ids,
        *[model.image] * int(np.prod(features.shape()[:-1])),
        *tokenizer.encode(after, add_special_tokens=False).ids,
    ]
    print(tokenizer.decode(list(model.ids(features, prompt, chosen.most))))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
