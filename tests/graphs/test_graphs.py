"""Any graph gives what it must, for all of its sizes and run after run; and the search would notice if it did not."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path

import numpy as np
import pytest

from onnxruntime_ep_wgpu.compiler.lower import ops
from onnxruntime_ep_wgpu.compiler.lower.ops import registry
from tests import shared, targets

from . import batches, check, rounding, shrink, values
from .case import Case, Node, Source
from .check import Outcome
from .generate import generate
from .rounding import Reject

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # what is no number is refused when it is drawn
FIRST, BATCH = 200, 50
"""Graphs of `make test`, and how many of them are a test."""
COUNT, LATER = 5000, 240
"""Graphs of `make test-all`, and how many of those that `make test` leaves out are a test: a process takes as long to start as it
takes for 20 of them."""
BATCHES = {it: it + BATCH for it in range(0, FIRST, BATCH)} | {it: it + LATER for it in range(FIRST, COUNT, LATER)}
"""The first graph of each, and which one is behind its last."""


def _batches() -> list[object]:
    """Every graph with one of the four pairs of a Target and a way to calculate 64-bit integers."""
    found = []
    for number, first in enumerate(BATCHES):
        way = targets.EVERY_PAIR[number % len(targets.EVERY_PAIR)]
        marks = [] if first < FIRST else [pytest.mark.exhaustive, pytest.mark.last]
        found.append(pytest.param(first, way, id=f"{first}-{way}", marks=marks))
    return found


def _key(first: int) -> str:
    return f"graphs-{first}"


@pytest.mark.every_case
@pytest.mark.parametrize(("first", "way"), _batches())
def test_random_graphs_give_what_they_must(
    first: int, way: targets.Way, tmp_path_factory: pytest.TempPathFactory
) -> None:
    flags = ["--target", way.target, "--int64", way.int64]
    run = shared.folder_of(tmp_path_factory)
    found = shared.once(run, _key(first), lambda: list(batches.run(range(first, BATCHES[first]), flags).values()))
    rows = {row["seed"]: row for row in found}
    assert len(rows) == BATCHES[first] - first
    wrong = [
        f"{row['status']}: python -m tests.graphs.worker {seed} {' '.join(flags)}: {row['detail']}"
        for seed, row in sorted(rows.items())
        if row["status"] != check.RIGHT
    ]
    assert not wrong, "\n".join(wrong)
    # A search that runs elsewhere, or is compared with nothing, finds nothing.
    on_gpu, on_cpu = (sum(sum(row[where].values()) for row in rows.values()) for where in ("on_gpu", "on_cpu"))
    assert on_gpu >= 4 * on_cpu
    assert sum(row["cpu_checked"] for row in rows.values()) >= len(rows) // 3


NOT_DRAWN = {
    "Bernoulli Multinomial RandomNormal RandomNormalLike RandomUniform RandomUniformLike": "other numbers in every run: tests/ops "
    "has them",
    "Scatter Upsample ImageScaler": "gone before the versions that are drawn",
    "TfIdfVectorizer DeformConv LinearAttention CausalConvWithState DFT STFT MelWeightMatrix": "tests/ops has them",
    "SequenceConstruct SequenceAt SequenceInsert SequenceErase SequenceEmpty SequenceLength SplitToSequence ConcatFromSequence"
    " Optional OptionalHasElement OptionalGetElement": "no tensors: tests/plugin/test_sequences.py has them",
    "AffineGrid MaxUnpool TensorScatter SimplifiedLayerNormalization": "the node suite and tests/ops have them",
}
"""Operators that no seed draws, and why. Those with sizes that data decides are in tests/plugin/test_data_sized.py."""


@pytest.mark.last
@pytest.mark.exhaustive
def test_the_seeds_of_a_test_draw_every_operator(tmp_path_factory: pytest.TempPathFactory) -> None:
    """What processes drew that ran these graphs is taken from them, and the others are drawn."""
    ops.load()
    declared = {name for domain, name in registry._OPERATORS if not domain}
    drawn: set[str] = set()
    for first, end in BATCHES.items():
        rows = shared.made(shared.folder_of(tmp_path_factory), _key(first)) or []
        known = {row["seed"]: row["drawn"] for row in rows if "drawn" in row}
        for seed in range(first, end):
            drawn.update(known[seed] if seed in known else (node.op for node in generate(seed)[0].nodes))
    assert declared - drawn - {*registry.sized_by_data()} == set(" ".join(NOT_DRAWN).split())


def test_a_seed_makes_the_same_graph_again() -> None:
    for seed in (3, 17, 256):
        one, other = generate(seed)[0], generate(seed)[0]
        assert one.model().SerializeToString() == other.model().SerializeToString()
        assert all(
            a.tobytes() == b.tobytes() for a, b in zip(one.feeds(1).values(), other.feeds(1).values(), strict=True)
        )


def _chain() -> Case:
    """y = relu(x @ w + b), reshaped, for two sizes."""
    rng = np.random.default_rng(0)
    sources = (
        Source("x", "float32", tuple(rng.uniform(-1, 1, (n, 4)).astype(np.float32) for n in (3, 5)), ("N", 4)),
        Source("w", "float32", (rng.uniform(-1, 1, (4, 6)).astype(np.float32),), (), True),
        Source("b", "float32", (np.arange(6, dtype=np.float32),), (), True),
        Source("s", "int64", (np.array([-1, 2, 3]),), (), True),
    )
    nodes = (
        Node("n0", "MatMul", ("x", "w"), ("h",), ("float32",)),
        Node("n1", "Add", ("h", "b"), ("a",), ("float32",)),
        Node("n2", "Relu", ("a",), ("r",), ("float32",)),
        Node("n3", "Reshape", ("r", "s"), ("y",), ("float32",)),
    )
    return Case(0, 20, sources, nodes, (("y", "float32", 3),), 2)


@pytest.mark.parametrize(
    "change",
    [
        lambda y: y - np.tile(np.arange(6, dtype=np.float32).reshape(2, 3), (len(y), 1, 1)),  # the epilogue is lost
        lambda y: np.roll(y, 1, -1),  # an index is off by one
        lambda y: np.where(np.arange(y.size).reshape(y.shape) == 7, y * 1.001, y),  # an element in a thousand parts
        lambda y: np.where(np.arange(y.size).reshape(y.shape) == 7, np.nan, y),
        lambda y: y.transpose(0, 2, 1),
    ],
)
def test_no_fault_hides_in_a_tolerance(change) -> None:  # type: ignore[no-untyped-def]
    from .builder import replayed

    known = replayed(_chain())
    samples = known["y"].runs[1]
    right = samples[0].astype(np.float32)
    assert not check.difference(right, samples, "float32")
    assert check.difference(change(right), samples, "float32")


def test_a_failure_is_shrunk_to_the_node_that_makes_it(tmp_path: Path) -> None:
    def judge(case: Case) -> Outcome:
        return Outcome("wrong", "", "as told", "y") if any(n.op == "Relu" for n in case.nodes) else Outcome(check.RIGHT)

    small, outcome = shrink.shrink(_chain(), judge(_chain()), judge)
    assert [node.op for node in small.nodes][-2:] == ["Relu", "Reshape"] or [n.op for n in small.nodes] == ["Relu"]
    assert small.runs == 1
    assert "Relu" in shrink.write(small, outcome, tmp_path)
    assert (tmp_path / "model.onnx").exists()


def test_a_crash_costs_one_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    def process(batch, flags, end, add):  # type: ignore[no-untyped-def]
        for seed in batch:
            add({"seed": seed, "status": "crash" if seed == 3 else "right"})
            if seed == 3:
                return tuple(s for s in batch if s > 3)
        return ()

    monkeypatch.setattr(batches, "_process", process)
    rows = batches.run(range(6))
    assert {seed: row["status"] for seed, row in rows.items()} == {k: "crash" if k == 3 else "right" for k in range(6)}


CRASHING = """
import faulthandler, sys
from tests.graphs import check, worker
sys.argv[1:] = ["--json", "3", "4"]
def crash(case, known, before_cpu):
    {first}
    faulthandler._sigsegv()
check.run = crash
worker.main()
"""


@pytest.mark.costly
@pytest.mark.parametrize(("first", "status"), [("pass", "crash"), ("before_cpu()", check.RIGHT)], ids=["ours", "cpu"])
def test_a_crash_in_native_code_says_where_and_whose(first: str, status: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "_command", lambda *_: [sys.executable, "-c", CRASHING.format(first=first)])
    rows: list[batches.Row] = []
    left = batches._process((3, 4), (), float("inf"), rows.append)
    assert left == (4,)
    (row,) = rows
    assert (row["seed"], row["status"]) == (3, status)
    assert "Fatal Python error: Segmentation fault" in row["detail"] and "in crash" in row["detail"]
    assert row["kind"].startswith("Fatal Python error") if status == "crash" else "CPU provider" in row["kind"]


@pytest.mark.parametrize(
    ("x", "fair"),
    [
        ([-1, 0, 1], False),  # a zero point of 127.5
        ([0, 1, 2], False),  # an element at 127.5
        ([-1, 0, 1.5], True),  # 102 and 255
        ([0, 0.5, 2], True),  # 63.75
    ],
)
def test_a_tie_that_f32_does_not_have_is_no_fair_test(x: list[float], fair: bool) -> None:
    node = Node("n", "DynamicQuantizeLinear", ("x",), ("y", "scale", "zero"), ("uint8", "float32", "uint8"))
    with contextlib.nullcontext() if fair else pytest.raises(Reject):
        assert len(rounding.samples_of(node, [(np.array(x, float),)], 20, (0, 0))) == 3


def test_an_exact_value_has_no_tolerance() -> None:
    assert not values.tolerance((np.arange(4.0),), "float32").any()
