"""Kernels for one row: fewer dispatches for a token, and results as of every number of rows and of the CPU provider."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx.helper import make_node

from onnxruntime_ep_wgpu.program.layout import Layouts
from onnxruntime_ep_wgpu.program.program import Program
from tests.language.models import Decoder, graph_of
from tests.support import Runner, compile_model, make_model, target
from tests.targets import OWN, Way

F, H = np.float32, np.float16
MICROSOFT = "com.microsoft"


@dataclass
class Layer:
    """A layer of a decoder without its attention: product + residual, norm, gate and up, product + residual, norm, last product.

    `kind` of weights: f32, f16, or bits of a block (4, 8, 2). `norm`: skip, simplified or spelled; `bias`: on which products;
    `zeros`: zero points; `also`: what else reads something: "norm", "up" or "residual".
    """

    kind: str | int = "f32"
    norm: str = "skip"
    bias: tuple[str, ...] = ()
    hidden: int = 256
    inner: int = 288
    other: int = 0  # columns of up, where they are not as many
    gate: str = "silu"
    zeros: bool = False
    also: str = ""
    batch: int = 1
    seed: int = 0
    weights: dict[str, np.ndarray] = field(default_factory=dict)
    nodes: list[onnx.NodeProto] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = np.random.default_rng(self.seed)

    @property
    def float_type(self) -> type:
        return H if self.kind == "f16" else F

    def node(self, op: str, inputs: list[str], output: str, domain: str = "", **more: object) -> str:
        self.nodes.append(make_node(op, inputs, [output], domain=domain, **more))
        return output

    def array(self, name: str, *shape: int, scale: float = 1.0, around: float = 0.0) -> str:
        self.weights[name] = (around + self.random.standard_normal(shape) * scale).astype(self.float_type)
        return name

    def product(self, x: str, name: str, k: int, n: int) -> str:
        if isinstance(self.kind, str):
            y = self.node("MatMul", [x, self.array(f"{name}.w", k, n, scale=k**-0.5)], f"{name}.y")
        else:
            bits, block = self.kind, 16
            blocks = -(-k // block)
            self.weights[f"{name}.q"] = self.random.integers(0, 256, (n, blocks, block * bits // 8), np.uint8)
            self.weights[f"{name}.s"] = (self.random.random((n, blocks)) * k**-0.5 / (1 << bits)).astype(F) * 4
            inputs = [x, f"{name}.q", f"{name}.s"]
            if self.zeros:
                self.weights[f"{name}.z"] = self.random.integers(0, 256, (n, -(-blocks * bits // 8)), np.uint8)
                inputs.append(f"{name}.z")
            y = self.node("MatMulNBits", inputs, f"{name}.y", MICROSOFT, K=k, N=n, bits=bits, block_size=block)
        if name in self.bias:
            y = self.node("Add", [y, self.array(f"{name}.bias", n)], f"{name}.biased")
        return y

    def normed(self, x: str, added: str, name: str, last: bool) -> tuple[str, str]:
        """The norm of the sum, and the sum."""
        gain = self.array(f"{name}.gain", self.hidden, scale=0.2, around=1.0)
        if self.norm == "skip":
            outputs = [name] if last else [name, "", "", f"{name}.sum"]
            node = make_node(
                "SkipSimplifiedLayerNormalization", [x, added, gain], outputs, domain=MICROSOFT, epsilon=1e-5
            )
            self.nodes.append(node)
            return name, outputs[-1]
        total = self.node("Add", [x, added], f"{name}.sum")
        if self.norm == "simplified":
            self.node("SimplifiedLayerNormalization", [total, gain], name, axis=-1, epsilon=1e-5)
            return name, total
        self.weights["axes"], self.weights["eps"] = np.array([-1]), np.array(1e-5, self.float_type)
        square = self.node("Mul", [total, total], f"{name}.square")
        mean = self.node("ReduceMean", [square, "axes"], f"{name}.mean")
        root = self.node("Sqrt", [self.node("Add", [mean, "eps"], f"{name}.eps")], f"{name}.root")
        return self.node("Mul", [gain, self.node("Div", [total, root], f"{name}.ratio")], name), total

    def model(self) -> onnx.ModelProto:
        x, inner, other = "x", self.inner, self.other or self.inner
        normed, x = self.normed(x, self.product(x, "o", self.hidden, self.hidden), "middle", last=False)
        gate, up = self.product(normed, "gate", self.hidden, inner), self.product(normed, "up", self.hidden, other)
        if self.gate == "silu":
            active = self.node("Mul", [gate, self.node("Sigmoid", [gate], "sigmoid")], "active")
        else:
            active = self.node("Tanh", [gate], "active")
        if other != inner:
            self.weights["half"] = np.array([other], np.int64)
            self.weights["zero"] = np.array([0], np.int64)
            self.weights["last"] = np.array([2], np.int64)
            active = self.node("Slice", [active, "zero", "half", "last"], "part")
        inside = self.node("Mul", [up, active], "inside")
        if self.also == "up":
            self.node("Neg", [up], "also")
        if self.also == "norm":
            self.node("Neg", [normed], "also")
        if self.also == "residual":
            self.node("Neg", [x], "also")
        normed, _ = self.normed(x, self.product(inside, "down", other, self.hidden), "end", last=True)
        self.product(normed, "head", self.hidden, 32)
        return self.finished()

    def finished(self) -> onnx.ModelProto:
        """The model of the nodes."""
        model = make_model(self.nodes, {"x": (self.float_type, [self.batch, "n", self.hidden])}, self.weights, opset=20)
        model.opset_import.append(onnx.helper.make_opsetid(MICROSOFT, 1))
        return model


def compared(layer: Layer, program: Program, model: onnx.ModelProto, rows: tuple[int, ...]) -> None:
    """Ours and the CPU provider's results, of one row, of more and of one again."""
    options = ort.SessionOptions()
    options.log_severity_level = 3
    cpu = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    ours = Runner(program)
    names = [it.name for it in model.graph.output]
    error = 2e-2 if layer.kind == "f16" else 3e-4
    for n in rows:
        x = layer.random.standard_normal((layer.batch, n, layer.hidden)).astype(layer.float_type)
        for name, got, wanted in zip(names, ours(x), cpu.run(names, {"x": x}), strict=True):
            np.testing.assert_allclose(got, wanted, rtol=error, atol=error, err_msg=f"{name}, {n} rows")


def again(layer: Layer) -> Layer:
    """The same without nodes."""
    return Layer(**{k: v for k, v in vars(layer).items() if k not in ("weights", "nodes", "random")})


def dispatches(program: Program, rows: int) -> int:
    symbols = [rows for _ in program.symbols]
    return len(Layouts(program).layout(symbols).steps)


# How many kernels one row takes, and two: products and norms otherwise.
LAYERS = {
    "f32": (Layer(), 4, 7),
    "f16": (Layer("f16"), 4, 7),
    "4 bits": (Layer(4), 4, 7),
    "8 bits": (Layer(8), 4, 7),
    "2 bits": (Layer(2), 4, 7),
    "zero points, for which bindings are few": (Layer(4, zeros=True), 6, 7),
    "simplified": (Layer(norm="simplified"), 4, 7),
    "spelled": (Layer(norm="spelled"), 4, 7),
    "spelled, 4 bits": (Layer(4, norm="spelled"), 4, 7),
    "bias on up": (Layer(bias=("up",)), 4, 7),
    "bias on all but up": (Layer(bias=("o", "gate", "down", "head")), 4, 7),
    "tanh": (Layer(gate="tanh"), 4, 7),
    "another reader of the sum": (Layer(also="residual"), 4, 7),
    "another reader of the norm": (Layer(also="norm"), 5, 7),
    "another reader of up": (Layer(also="up"), 5, 7),
    "fewer columns of up": (Layer(other=260), 5, 7),
    "columns that are no multiple of 16": (Layer(hidden=260, inner=268), 6, 7),
    "columns that are no multiple of 4": (Layer(hidden=262, inner=270), 6, 7),
    "wide": (Layer(hidden=1040, inner=1056), 4, 7),
    "wide, 4 bits": (Layer(4, hidden=1040, inner=1056), 4, 7),
    "several sequences": (Layer(batch=3), 7, 7),
}


@pytest.mark.costly
@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_on_a_gpu_takes_a_kernel_per_product_for_one_row(name: str) -> None:
    layer, one, more = LAYERS[name]
    layer = again(layer)
    model = layer.model()
    program = compile_model(model, Way("gpu").of(target()))
    found = dispatches(program, 1), dispatches(program, 2)
    compared(layer, program, model, (1, 5, 2, 1))
    assert found == (one, more)


# Columns of products of one operand, their weights, and how many kernels one row takes.
BESIDE = {
    "queries, keys and values of as many heads": (Layer(), (128, 128, 128), 1),
    "grouped heads": (Layer(), (256, 128, 128), 2),
    "grouped heads, f16": (Layer("f16", bias=("p0", "p2")), (256, 128, 128), 2),
    "grouped heads, 4 bits": (Layer(4, bias=("p1",)), (256, 128, 128), 2),
    "more than there are bindings for": (Layer(4), (128, 128, 128), 2),
    "zero points": (Layer(4, zeros=True), (128, 128), 2),
    "two pairs": (Layer(8), (64, 96, 64, 96), 2),
}


def reasons(program: Program) -> list[str]:
    return [f"{', '.join(it.origin)}: {it.reason}" for it in program.declined if it.rule == "one_row"]


def test_what_stays_a_kernel_of_its_own_says_why() -> None:
    on, skip = Way("gpu").of(target()), "SkipSimplifiedLayerNormalization"
    many = "the kernel needs 9 bindings, and the adapter has 8"
    wanted: dict[str, list[str]] = {name: [] for name in LAYERS}
    wanted |= {
        "zero points, for which bindings are few": [f"{skip}(middle): {many}", f"{skip}(end): {many}"],
        "another reader of the norm": [f"{skip}(middle): the kernel stores more than the norm"],
        "another reader of up": ["MatMul(gate.y): it cannot be fused with MatMul(up.y): its result has another reader"],
    }
    for columns in (260, 262):
        why = f"rows of {columns} elements are not known to be multiples of 16"
        name = f"columns that are no multiple of {16 if columns == 260 else 4}"
        wanted[name] = [f"{skip}(middle): {why}", f"{skip}(end): {why}"]
    assert {name: reasons(compile_model(again(layer).model(), on)) for name, (layer, *_) in LAYERS.items()} == wanted


def test_products_that_do_not_fit_into_one_kernel_say_by_how_much() -> None:
    layer = Layer(4, hidden=2048)
    for k in range(5):
        layer.product("x", f"p{k}", layer.hidden, 128)
    model, on = layer.finished(), dataclasses.replace(Way("gpu").of(target()), max_workgroup_storage=16 << 10)
    beside = "it cannot be fused with MatMulNBits({}.y): the kernel needs"
    few = f"{beside.format('p{}')} 10 bindings, and the adapter has 8"
    assert reasons(compile_model(model, on)) == [
        *(f"MatMulNBits(p{k}.y): {few.format(0)}" for k in (2, 3, 4)),
        f"MatMulNBits(p4.y): {few.format(2)}",
    ]
    many = dataclasses.replace(on, max_storage_buffers=32)
    assert reasons(compile_model(model, many)) == [
        f"MatMulNBits(p4.y): {beside.format('p0')} 20480 bytes of workgroup memory, and the adapter has 16384"
    ]


@pytest.mark.costly
@pytest.mark.parametrize("halves", ["shader-f16", "packed"])
@pytest.mark.parametrize("name", BESIDE)
def test_products_of_one_operand_with_as_many_columns_are_one_kernel(name: str, halves: str) -> None:
    """Halves may have words of their own or share them."""
    layer, columns, one = BESIDE[name]
    layer = again(layer)
    for k, n in enumerate(columns):
        layer.node("Neg", [layer.product("x", f"p{k}", layer.hidden, n)], f"y{k}")
    model, on = layer.finished(), Way("gpu").of(target())
    if halves == "packed":
        on = dataclasses.replace(on, features=on.features - {"shader-f16"})
    program = compile_model(model, on)
    compared(layer, program, model, (1, 3, 1))
    assert (dispatches(program, 1), dispatches(program, 2)) == (one, len(columns))


def test_a_product_that_waits_for_what_is_made_of_another_one_is_not_part_of_it() -> None:
    layer = Layer()
    first = layer.product("x", "p0", layer.hidden, 64)
    softmax = layer.node("Softmax", [first], "softmax", axis=-1)
    second = layer.product("x", "p1", layer.hidden, 64)
    layer.node("Add", [second, softmax], "y")
    layer.node("Neg", [first], "z")
    model = layer.finished()
    program = compile_model(model, Way("gpu").of(target()))
    compared(layer, program, model, (1, 3, 1))
    assert dispatches(program, 1) == 3


@pytest.mark.costly
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("way", (OWN, Way("gpu"), Way("browser", "pair")), ids=lambda way: way.target)
def test_random_layers(way: Way, seed: int) -> None:
    random = np.random.default_rng(seed)

    def one_of(*them):  # type: ignore[no-untyped-def]
        return them[random.integers(len(them))]

    layer = Layer(
        kind=one_of("f32", "f16", 4, 8, 2), norm=one_of("skip", "simplified", "spelled"),
        bias=tuple(it for it in ("o", "gate", "up", "down", "head") if random.random() < 0.4),
        hidden=int(random.integers(1, 30)) * one_of(4, 16, 16), inner=int(random.integers(1, 400)), gate=one_of("silu", "tanh"),
        zeros=random.random() < 0.4, also=one_of("", "", "norm", "up", "residual"), batch=one_of(1, 1, 1, 2), seed=seed,
    )  # fmt: skip
    model = layer.model()
    compared(layer, compile_model(model, way.of(target())), model, (1, 3, 1))


def test_a_graph_of_one_row_has_no_other_kernels() -> None:
    layer = Layer(4)
    model = layer.model()
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 1
    program = compile_model(model, Way("gpu").of(target()))
    assert len(program.dispatches) == 4
    compared(layer, program, model, (1,))


def test_rows_that_are_not_finite_are_as_with_norms() -> None:
    layer = Layer()
    model = layer.model()
    run = Runner(compile_model(model, Way("gpu").of(target())))
    for value in (np.nan, np.inf, 1e30, 1e-30, 0.0):
        x = np.full((1, 1, layer.hidden), value, F)
        x[0, 0, 1:] *= 1 if value in (0.0, 1e-30) else 0.5
        single, double = run(x), run(np.concatenate([x, x], 1))
        for one, two in zip(single, double, strict=True):
            np.testing.assert_allclose(one[0, 0], two[0, 0], rtol=1e-4, atol=1e-5)


@pytest.mark.costly
@pytest.mark.parametrize("kind", ["fp32", "int4-fp32"])
def test_a_decoder_goes_on_token_by_token_as_the_cpu_provider_does(kind: str) -> None:
    decoder = Decoder(kind=kind, layers=2, heads=4, groups=2, size=64, inner=288, length=16)
    model = graph_of(decoder)
    for attribute in (it for node in model.graph.node for it in node.attribute if it.name == "accuracy_level"):
        attribute.i = 1  # the CPU provider takes 8 bits of what is multiplied otherwise
    program = compile_model(model, Way("gpu").of(target()))
    ours, cpu = Runner(program), ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    names, results = [it.name for it in model.graph.input], [it.name for it in model.graph.output]
    caches = [np.zeros((1, decoder.groups, decoder.length, decoder.size), F) for _ in range(2 * decoder.layers)]
    random, used = np.random.default_rng(0), 0
    for count in (5, 1, 1, 2, 1):
        ids, mask = random.integers(3, 60, (1, count)), np.ones((1, used + count), np.int64)
        wanted = cpu.run(results, dict(zip(names, (ids, mask, *caches), strict=True)))
        got = ours(ids, mask, *caches)
        np.testing.assert_allclose(got[0], wanted[0], rtol=2e-3, atol=2e-3)
        used += count
        for mine, theirs in zip(got[1:], wanted[1:], strict=True):
            np.testing.assert_allclose(mine[:, :, :used], theirs[:, :, :used], rtol=2e-3, atol=2e-3)
        caches = [it.copy() for it in wanted[1:]]
    sizes = {"batch_size": 1, "total_sequence_length": 9, "past_sequence_length": decoder.length}
    one, two = (
        len(Layouts(program).layout([{**sizes, "sequence_length": n}[it.name] for it in program.symbols]).steps)
        for n in (1, 2)
    )
    assert two - one == 4 * decoder.layers


@pytest.mark.costly
@pytest.mark.parametrize("how", ["add", "gate"])
@pytest.mark.parametrize("kind", ["f32", 4])
def test_a_norm_that_the_product_itself_needs_besides(kind: str | int, how: str) -> None:
    layer = Layer(kind)
    normed, x = layer.normed("x", layer.product("x", "o", 256, 256), "middle", last=False)
    p = layer.product(normed, "p", 256, 256)
    layer.node(*(("Add", [p, normed]) if how == "add" else ("Mul", [layer.node("Sigmoid", [p], "s"), normed])), "y")
    layer.node("Neg", [x], "z")
    model = layer.finished()
    compared(layer, compile_model(model, Way("gpu").of(target())), model, (2, 1, 5, 1))


@pytest.mark.costly
@pytest.mark.parametrize("factor", ["product of x", "product of sum", "softmax of x", "softmax of sum"])
def test_a_norm_with_a_factor_that_is_made_behind_the_product(factor: str) -> None:
    layer = Layer()
    total = layer.node("Add", [layer.product("x", "o", 256, 256), "x"], "sum")
    what, of = factor.split(" of ")
    of = "x" if of == "x" else total
    z = layer.product(of, "z", 256, 256) if what == "product" else layer.node("Softmax", [of], "zs", axis=-1)
    gain = layer.array("gain", 256, scale=0.2, around=1.0)
    normed = layer.node("SimplifiedLayerNormalization", [total, gain], "n", axis=-1, epsilon=1e-5)
    layer.node("Neg", [layer.product(layer.node("Mul", [normed, z], "gated"), "p", 256, 256)], "y")
    layer.node("Neg", [total], "zz")
    model = layer.finished()
    compared(layer, compile_model(model, Way("gpu").of(target())), model, (2, 1, 5, 1))


@pytest.mark.costly
@pytest.mark.parametrize("seed", range(40))
def test_random_graphs_of_products_and_norms(seed: int) -> None:
    """Products, norms and what may lie between them, each of one of the last three values."""
    random = np.random.default_rng(seed)
    layer, values = Layer(seed=seed), ["x"]

    def recent() -> str:
        return values[max(0, len(values) - 1 - int(random.integers(3)))]

    for number in range(int(random.integers(4, 10))):
        op = random.choice(["product", "norm", "Add", "Mul", "Sigmoid", "Softmax"], p=[0.4, 0.2, 0.15, 0.1, 0.1, 0.05])
        name = f"v{number}"
        if op == "product":
            values.append(layer.product(recent(), f"p{number}", layer.hidden, layer.hidden))
        elif op == "norm":
            gain = layer.array(f"g{number}", layer.hidden, scale=0.2, around=1.0)
            values.append(layer.node("SimplifiedLayerNormalization", [recent(), gain], name, axis=-1, epsilon=1e-5))
        elif op in ("Add", "Mul"):
            values.append(layer.node(op, [recent(), recent()], name))
        else:
            values.append(layer.node(op, [recent()], name, **({"axis": -1} if op == "Softmax" else {})))
    layer.node("Tanh", [values[-1]], "y")
    model = layer.finished()
    compared(layer, compile_model(model, Way("gpu").of(target())), model, (2, 1))
