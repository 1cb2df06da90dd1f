"""Models that look at the length of their mask: they get one as long as the text, also where nodes on the CPU read it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import onnxruntime_ep_wgpu as webgpu_ep
from onnxruntime_ep_wgpu.api.language.mask_length import decides_by_length, only_gives_lengths

from .models import Decoder, graph_of, write_beside
from .test_generate import reference

MASK = "attention_mask"
PROMPT = [5, 77, 130, 9, 200, 8, 61, 100, 44, 45, 46, 47, 48, 49, 50, 51, 52, 53, 54, 55]


def with_two_tables(by: str, limit: int) -> onnx.ModelProto:
    """A decoder with other angles where the mask has more than `limit` columns, chosen by a Where or an If."""
    model = graph_of(Decoder(length=512, seed=3))
    graph = model.graph
    known = {it.name: it for it in graph.initializer}
    at = [it.name for it in graph.node].index("total") + 1
    for name, angles_of in (("cosines", np.cos), ("sines", np.sin)):
        short = numpy_helper.to_array(known[name])
        rows, columns = short.shape
        angles = np.arange(rows)[:, None] / 100.0 ** (np.arange(columns) / columns) / 4
        long = (angles_of(angles) * 1.2).astype(np.float32)
        graph.initializer.remove(known[name])
        if by == "Where":
            graph.initializer.extend(numpy_helper.from_array(it, f"{name}.{k}") for k, it in enumerate((long, short)))
            graph.node.insert(at, helper.make_node("Where", ["is_long", f"{name}.0", f"{name}.1"], [name]))
        else:
            bodies = [
                helper.make_graph(
                    [helper.make_node("Constant", [], [f"{name}.{k}"], value=numpy_helper.from_array(it))],
                    f"{name}.{k}",
                    [],
                    [helper.make_tensor_value_info(f"{name}.{k}", onnx.TensorProto.FLOAT, it.shape)],
                )
                for k, it in enumerate((long, short))
            ]
            graph.node.insert(
                at, helper.make_node("If", ["is_long"], [name], then_branch=bodies[0], else_branch=bodies[1])
            )
    graph.initializer.append(numpy_helper.from_array(np.array(limit), "limit"))
    graph.node.insert(at, helper.make_node("Greater", ["total64", "limit"], ["is_long"], name="is_long"))
    return model


@pytest.mark.parametrize("by", ["Where", "If"])
@pytest.mark.parametrize("limit", [300, 5])
def test_tables_are_those_of_the_length_of_the_text(by: str, limit: int, tmp_path: Path) -> None:
    onnx.save(with_two_tables(by, limit), tmp_path / "model.onnx")
    write_beside(Decoder(length=512, seed=3), tmp_path)
    model = webgpu_ep.LanguageModel(tmp_path)
    assert model.decoder.exact_masks and not model.decoder.short_masks
    found = [token for _, token in model.tokens([PROMPT], max_new_tokens=10, ends=())]
    wanted = reference(tmp_path, PROMPT, 10)
    assert found[: len(wanted)] == wanted and len(wanted) > 5
    again = [token for _, token in model.tokens([PROMPT[:7]], max_new_tokens=5, ends=())]
    assert again == reference(tmp_path, PROMPT[:7], 5)[:5]


def test_a_batch_of_such_a_model(tmp_path: Path) -> None:
    onnx.save(with_two_tables("Where", 300), tmp_path / "model.onnx")
    write_beside(Decoder(length=512, seed=3), tmp_path)
    model = webgpu_ep.LanguageModel(tmp_path)
    found: list[list[int]] = [[], []]
    for row, token in model.tokens([PROMPT, PROMPT[:6]], max_new_tokens=6, ends=()):
        found[row].append(token)
    assert found == [reference(tmp_path, it, 6) for it in (PROMPT, PROMPT[:6])]


def test_which_models_get_which_mask() -> None:
    plain = graph_of(Decoder())
    assert only_gives_lengths(plain, MASK) and not decides_by_length(plain, MASK)
    captured = graph_of(Decoder(captured=True))
    assert only_gives_lengths(captured, MASK) and not decides_by_length(captured, MASK)
    tables = with_two_tables("Where", 3)
    assert not only_gives_lengths(tables, MASK) and decides_by_length(tables, MASK)
    counted = graph_of(Decoder())
    counted.graph.node.append(helper.make_node("CumSum", [MASK, "axes"], ["positions"]))
    assert not only_gives_lengths(counted, MASK) and not decides_by_length(counted, MASK)
    shown = graph_of(Decoder())
    shown.graph.node.append(helper.make_node("Identity", [MASK], ["mask_out"]))
    shown.graph.output.append(helper.make_tensor_value_info("mask_out", onnx.TensorProto.INT64, None))
    assert not only_gives_lengths(shown, MASK)


def test_a_mask_that_is_read_on_the_cpu_is_that_of_each_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """ONNX Runtime copies such an input when it is bound; a run with the same tensors must not read the copy of the first."""
    onnx.save(with_two_tables("If", 1000), tmp_path / "model.onnx")
    write_beside(Decoder(length=512, seed=3), tmp_path)
    model = webgpu_ep.LanguageModel(tmp_path)
    monkeypatch.setattr(model.decoder, "exact_masks", False)  # so that steps have the same tensors
    found = [token for _, token in model.tokens([PROMPT], max_new_tokens=6, ends=())]
    assert found == reference(tmp_path, PROMPT, 6)
