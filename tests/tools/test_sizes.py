"""The sizes of inputs that tools make up: sensible, the same for one name, and told."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx.helper import make_node as node

from onnxruntime_ep_wgpu import InputError, cli
from onnxruntime_ep_wgpu.tools._sizes import sizes
from tests.support import make_model

BERT = dict.fromkeys(("input_ids", "attention_mask"), ("batch_size", "sequence_length"))


@pytest.mark.parametrize(
    ("inputs", "shapes"),
    [
        (BERT, {"input_ids": (1, 128), "attention_mask": (1, 128)}),
        ({"x": ("N", 3, "H", "W")}, {"x": (1, 3, 224, 224)}),
        ({"x": ("DynamicDimension.0", 3, "?", None)}, {"x": (1, 3, 224, 224)}),
        ({"x": (None, None, None, 3)}, {"x": (1, 224, 224, 3)}),
        ({"x": (None, None, None, None)}, {"x": (1, 3, 224, 224)}),
        ({"x": (3, "height", "width")}, {"x": (3, 224, 224)}),
        ({"x": (3, None, None)}, {"x": (3, 224, 224)}),
        ({"state": (2, None, 64), "h": (1, None, 32)}, {"state": (2, 1, 64), "h": (1, 1, 32)}),
        ({"x": (1, None, 256), "y": (4, None, 80)}, {"x": (1, 128, 256), "y": (4, 1, 80)}),
        ({"x": (None, None, 80)}, {"x": (1, 128, 80)}),
        ({"x": ("batch", 80, "frames")}, {"x": (1, 80, 128)}),
        ({"x": (None, 1, None, None, None)}, {"x": (1, 1, 32, 32, 32)}),
        ({"x": ("N", 0, -1)}, {"x": (1, 0, 128)}),
        ({"x": ("unk__7",), "y": ()}, {"x": (1,), "y": ()}),
        ({"k": ("batch", 12, "past_sequence_length", 64)}, {"k": (1, 12, 128, 64)}),
        ({"k": (None, 12, None, 64)}, {"k": (1, 12, 128, 64)}),
        (
            {"mask": ("b", "past_seq + seq"), "total": ("b", "total_seq"), "k": ("b", 2, "past_seq", 4), "ids": ("b", "seq")},
            {"mask": (1, 256), "total": (1, 256), "k": (1, 2, 128, 4), "ids": (1, 128)},
        ),
        ({"mask": ("b", "past + 1"), "k": ("b", 2, "past", 4)}, {"mask": (1, 129), "k": (1, 2, 128, 4)}),
    ],
)  # fmt: skip
def test_sizes_are_those_of_the_usual_layouts(inputs, shapes):
    found = sizes(inputs, {}, {})
    assert found.shapes == shapes
    free = {dim for shape in inputs.values() for dim in shape if isinstance(dim, str)}
    assert set(found.named) == free
    assert set(found.placed) == {
        (name, axis)
        for name, shape in inputs.items()
        for axis, dim in enumerate(shape)
        if dim is None or (isinstance(dim, int) and dim < 0)
    }


def past(*dims):
    return {f"past_key_values.0.{it}": dims for it in ("key", "value")}


IDS, P = ("batch_size", "sequence_length"), "past_sequence_length"
DECODERS = {
    "a sum": {"input_ids": IDS, "attention_mask": ("batch_size", f"{P} + sequence_length"), **past("batch_size", 2, P, 64)},
    "one more": {"input_ids": (None, 1), "attention_mask": (None, f"{P} + 1"), **past("batch_size", 2, P, 64)},
    "a total": {
        "input_ids": IDS, "attention_mask": ("batch_size", "total_sequence_length"), "position_ids": IDS,
        **past("batch_size", 2, P, 64),
    },
    "a name of the mask": {
        "input_ids": IDS, "attention_mask": ("batch_size", "attention_mask_sequence_length"), **past("batch_size", 2, P, 64)
    },
    "no names": {"input_ids": (1, None), "attention_mask": (1, None), **past(1, 2, None, 64)},
    "symbols": {"input_ids": ("s0", "s1"), "attention_mask": ("s0", "s2"), **past("s0", 2, "s3", 64)},
    "symbols of each": {
        "input_ids": ("s0", "s1"), "attention_mask": ("s0", "s2"),
        "past_key_0": ("s0", 2, "s3", 8), "past_value_0": ("s0", 2, "s4", 8),
    },
    "one token": {"input_ids": (1, 1), "attention_mask": ("b", "m"), **past("b", 4, "p", 64)},
    "embeddings": {
        "inputs_embeds": ("batch", "s", 512), "attention_mask": ("batch", "t"), "position_ids": (3, "batch", "s"),
        "past_0": (2, "batch", 4, "p", 64),
    },
    "channels first": {"ids": ("b", "s"), "attention_mask": ("b", "t"), "past_key": ("bh", 64, "p"), "past_value": ("bh", "p", 64)},
    "rows of a mask": {"input_ids": ("b", "s"), "attention_mask": ("b", 1, "q", "t"), "cache_k_0": ("b", "p", 2, 64)},
}  # fmt: skip


def lengths(shapes):
    """What is cached, new and the total."""
    first = next(it for it in shapes if "past" in it or "cache" in it)
    cached = shapes[first][{3: -1, 4: -2, 5: -2}[len(shapes[first])] if "cache" not in first else 1]
    new = next(shape[1] for name, shape in shapes.items() if "ids" in name or "embeds" in name)
    return cached, new, shapes["attention_mask"][-1]


@pytest.mark.parametrize("inputs", DECODERS.values(), ids=DECODERS)
def test_what_a_decoder_has_cached_and_what_is_new_make_the_total(inputs):
    cached, new, total = lengths(sizes(inputs, {}, {}).shapes)
    assert cached == 128
    assert new == (1 if inputs.get("input_ids", ("", ""))[1] == 1 else 128)
    assert total == cached + new
    for name, shape in inputs.items():
        axis = {"attention_mask": -1, "input_ids": 1}.get(name)
        if axis is not None and isinstance(shape[axis], str):
            cached, new, total = lengths(sizes(inputs, {shape[axis]: 10}, {}).shapes)
            assert total == cached + new
            assert 10 in (new, total)
    shape = tuple(7 if isinstance(it, str | None) else it for it in inputs["attention_mask"])
    cached, new, total = lengths(sizes(inputs, {}, {"attention_mask": shape}).shapes)
    assert (total, cached + new) == (7, 7)
    if "rows" not in inputs:
        caches = {name: it for name, it in sizes(inputs, {}, {}).shapes.items() if "past" in name or "cache" in name}
        assert len({it.count(128) for it in caches.values()}) == 1


def test_a_total_that_its_parts_exceed_is_refused():
    with pytest.raises(InputError, match=r"total_sequence_length is 5, and consists of past_sequence_length=9 \+ new"):
        sizes(DECODERS["a total"], {"total_sequence_length": 5, P: 9}, {})


def test_what_no_decoder_has_is_not_taken_for_its_total():
    """A mask of the text itself, of another text, of a picture, and of a model without a cache."""
    shapes = sizes(
        {
            "input_ids": ("b", "s"), "attention_mask": ("b", "s"), "encoder_attention_mask": ("b", "encoder_sequence_length"),
            "encoder_hidden_states": ("b", "encoder_sequence_length", 64), "pixel_attention_mask": ("b", "height", "width"),
            **past("b", 2, P, 64),
        }, {}, {},
    ).shapes  # fmt: skip
    assert shapes["attention_mask"] == shapes["encoder_attention_mask"] == (1, 128)
    assert shapes["encoder_hidden_states"] == (1, 128, 64)
    assert shapes["pixel_attention_mask"] == (1, 224, 224)
    assert sizes({"ids": ("b", "s"), "mask": ("b", "t")}, {"s": 5}, {}).shapes["mask"] == (1, 128)


def test_a_name_has_the_size_that_the_user_gave_in_every_input():
    assert sizes(BERT, {"sequence_length": 7}, {}).shapes["attention_mask"] == (1, 7)
    given = sizes(BERT, {}, {"input_ids": (2, 9)})
    assert given.shapes["attention_mask"] == (2, 9) and given.sentence() == ""
    assert "batch_size=1" in sizes(BERT, {"sequence_length": 7}, {}).sentence()
    assert "sequence_length" not in sizes(BERT, {"sequence_length": 7}, {}).sentence()


@pytest.mark.parametrize(
    ("dims", "given", "message"),
    [
        ({"seq": 4}, {}, "--dim seq: no input has .* batch_size, sequence_length"),
        ({"sequence_length": 4}, {"input_ids": (1, 5)}, "'input_ids'.* sequence_length would be 5 and 4"),
        ({}, {"input_ids": (1, 5), "attention_mask": (1, 6)}, "sequence_length would be 6 and 5"),
        ({}, {"input_ids": (1, 5, 1)}, "another rank"),
    ],
)
def test_what_disagrees_is_refused(dims, given, message):
    with pytest.raises(InputError, match=message):
        sizes(BERT, dims, given)


@pytest.mark.costly
@pytest.mark.parametrize("tool", ["run", "verify", "profile"])
def test_every_tool_that_makes_inputs_up_says_what_it_chose(tool, tmp_path, capsys):
    path = tmp_path / "model.onnx"
    model = make_model(
        [node("Add", ["x", "z"], ["y"])], {"x": (np.float32, ["batch", "seq"]), "z": (np.float32, ["seq"])}
    )
    onnx.save(model, path)
    more = ["--output", str(tmp_path / "out")]
    assert cli.main([tool, str(path), "--json", *(more if tool != "verify" else [])]) == 0
    assert "note: missing sizes: batch=1, seq=128 (--dim NAME=SIZE or" in capsys.readouterr().err
    more = ["--output", str(tmp_path / "other")]
    assert (
        cli.main([tool, str(path), "--json", "--dim", "seq=3", "--dim", "batch=2", *(more if tool != "verify" else [])])
        == 0
    )
    told = capsys.readouterr().err.splitlines()
    assert told == ["note: made-up values (seed 0) for x, z: --input NAME=FILE.npy sets real ones"]
    assert cli.main([tool, str(path), "--dim", "seq=x"]) == 2
    assert "--dim seq=x: a size is an integer" in capsys.readouterr().err
