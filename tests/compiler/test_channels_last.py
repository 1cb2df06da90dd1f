"""Images whose channels are last in memory, as convolutions hand them on to each other on GPUs: the same results whatever follows,
and kernels that read four neighbouring channels. The graphs are generated; each has convolutions of every kind."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from onnx import helper, numpy_helper

from onnxruntime_ep_wgpu.compiler import tune
from onnxruntime_ep_wgpu.compiler.lower.channels import channels_last_in
from onnxruntime_ep_wgpu.errors import InputError
from onnxruntime_ep_wgpu.program.axes import model_name
from onnxruntime_ep_wgpu.program.program import Program
from onnxruntime_ep_wgpu.program.weights import Permuted
from tests import targets
from tests.support import Runner, compile_model, target

way = targets.each(targets.Way("gpu"))


class Net:
    """A graph of images that grows by a node at a time."""

    def __init__(self, seed: int, dtype: Any = np.float32) -> None:
        self.random, self.dtype = np.random.default_rng(seed), dtype
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.channels = {"x": 3}

    def weight(self, array: np.ndarray) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(array, name))
        return name

    def add(self, kind: str, *inputs: str, channels: int, **attributes: Any) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], name, **attributes))
        self.channels[name] = channels
        return name

    def conv(self, x: str, features: int, kernel: int = 3, group: int = 1, **attributes: Any) -> str:
        each = self.channels[x] // group
        scale = 1 / np.sqrt(each * kernel * kernel)
        w = (self.random.standard_normal((features, each, kernel, kernel)) * scale).astype(self.dtype)
        inputs = [x, self.weight(w)]
        if self.random.random() < 0.7:
            inputs.append(self.weight(self.random.standard_normal(features).astype(self.dtype)))
        attributes = {"pads": [kernel // 2] * 4, "group": group} | attributes
        return self.add("Conv", *inputs, channels=features, **attributes)

    def grown(self, x: str) -> str:
        """x with one more layer, or two that meet."""
        r, c = self.random, self.channels[x]
        kind = r.choice(["conv", "one", "strided", "dilated", "depthwise", "groups", "wide", "last", "relu", "add", "join", "pool",
                         "resize", "pad", "split", "gate", "scale", "odd"])  # fmt: skip
        wide = int(r.choice([4, 8, 12]))
        match kind:
            case "conv":
                return self.conv(x, wide)
            case "one":
                return self.conv(x, wide, 1)
            case "strided":
                return self.conv(x, wide, int(r.choice([1, 2, 3])), strides=[2, 1])
            case "dilated":
                return self.conv(x, wide, dilations=[2, 1], pads=[2, 1, 2, 0])
            case "depthwise":
                return self.conv(x, c, int(r.choice([3, 5])), c, strides=[int(r.choice([1, 2]))] * 2)
            case "groups":
                return self.conv(x, 8, group=2) if c % 2 == 0 else self.conv(x, c * 2, group=c)
            case "wide":
                group, each = int(r.choice([2, 3])), int(r.choice([4, 8]))
                x = self.conv(x, group * each, 1)
                kernel, apart = int(r.choice([1, 3])), int(r.choice([1, 2]))
                pads, dilations = [kernel // 2, kernel // 2 * apart] * 2, [1, apart]
                strides = [1, int(r.choice([1, 2]))]
                features = group * int(r.choice([4, 12]))
                return self.conv(x, features, kernel, group, pads=pads, dilations=dilations, strides=strides)
            case "last":
                last = self.add("Transpose", x, channels=c, perm=[0, 2, 3, 1])
                for kind in r.choice(["Softmax", "Relu", "MatMul"], 2):
                    square = [self.weight(np.eye(c, dtype=self.dtype))] if kind == "MatMul" else []
                    last = self.add(str(kind), last, *square, channels=c)
                second = self.add("Transpose", last, channels=c, perm=[0, 3, 1, 2])
                return self.add("Add", second, x, channels=c)
            case "relu":
                return self.add(str(r.choice(["Relu", "Sigmoid", "HardSwish"])), x, channels=c)
            case "add":
                return self.add("Add", x, self.conv(x, c), channels=c)
            case "join":
                other = self.conv(x, wide)
                return self.add("Concat", x, other, channels=c + wide, axis=1)
            case "pool":
                kind = str(r.choice(["MaxPool", "AveragePool"]))
                return self.add(kind, x, channels=c, kernel_shape=[3, 2], strides=[1, 2], pads=[1, 0, 1, 1])
            case "resize":
                scales = self.weight(np.array([1, 1, 2, 1], np.float32))
                mode = str(r.choice(["nearest", "linear"]))
                return self.add("Resize", x, "", scales, channels=c, mode=mode)
            case "pad":
                pads = self.weight(np.array([0, 0, 1, 0, 0, 0, 0, 2], np.int64))
                return self.add("Pad", x, pads, channels=c)
            case "split":
                part = int(r.integers(1, c)) if c > 1 else 1
                ends = [self.weight(np.array([n], np.int64)) for n in (c - part, c, 1)]
                return self.add("Slice", x, *ends, channels=part)
            case "gate":
                pooled = self.add("GlobalAveragePool", x, channels=c)
                return self.add("Mul", x, self.add("Sigmoid", self.conv(pooled, c, 1), channels=c), channels=c)
            case "scale":
                factor = self.weight(self.random.standard_normal((c, 1, 1)).astype(self.dtype))
                return self.add("Mul", x, factor, channels=c)
            case _:
                return self.conv(x, 5)

    def model(self, outputs: list[str], free: bool) -> onnx.ModelProto:
        shape = ["n", 3, "h", "w"] if free else [2, 3, 9, 10]
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(self.dtype))
        graph = helper.make_graph(
            self.nodes,
            "images",
            [helper.make_tensor_value_info("x", kind, shape)],
            [helper.make_tensor_value_info(name, kind, None) for name in outputs],
            self.weights,
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def network(seed: int, free: bool, dtype: Any = np.float32) -> onnx.ModelProto:
    net = Net(seed, dtype)
    x = net.conv("x", 8)
    for _ in range(7):
        x = net.grown(x)
    tail = net.add("Flatten", x, channels=0)
    softmax = net.add("Softmax", x, channels=net.channels[x], axis=1)
    turned = net.add("Transpose", x, channels=0, perm=[0, 2, 3, 1])
    return net.model([tail, softmax, net.add("Neg", turned, channels=0)], free)


def layers(kind: str, count: int, **attributes: Any) -> Net:
    """Convolutions with something between them."""
    net = Net(0)
    x = net.conv("x", 8)
    for _ in range(count - 1):
        between = net.add(kind, x, channels=8, **attributes)
        x = net.conv(between, 8)
    return net


def chosen(net: Net, *outputs: str) -> int:
    """How many convolutions make images whose channels are last."""
    module = ir.from_proto(net.model(list(outputs), False))
    return len(channels_last_in(module.graph))


@pytest.mark.parametrize("kind", ["Relu", "Sign", "Shrink", "HardSwish", "Identity", "Mish"])
def test_what_leaves_the_order_of_memory_as_it_is(kind: str) -> None:
    net = layers(kind, 6)
    assert chosen(net, net.nodes[-1].output[0]) == 6


def test_readers_that_want_the_order_of_onnx_decide() -> None:
    few, many = layers("Relu", 4), layers("Relu", 5)  # read by three and by four, and given away once
    assert chosen(few, few.nodes[-1].output[0]) == 0 and chosen(many, many.nodes[-1].output[0]) == 5
    assert chosen(many, *(node.output[0] for node in many.nodes[-4:])) == 0
    turned = layers("Transpose", 6, perm=[0, 1, 3, 2])
    assert chosen(turned, turned.nodes[-1].output[0]) == 0


@pytest.mark.parametrize(("group", "count"), [(1, 13), (2, 13), (4, 0), (8, 13)])
def test_convolutions_of_groups_of_parts_of_vectors_are_readers_like_others(group: int, count: int) -> None:
    net = Net(0)
    x = net.conv("x", 8)
    for _ in range(6):
        x = net.conv(net.conv(x, 8, group=group), 8)
    assert chosen(net, x) == count


def test_transposes_before_and_behind_layers_of_channels_take_no_kernel() -> None:
    """As in a ConvNeXt: a normalisation and products of the channels, between transposes, added to what they were made of."""
    net = Net(0)
    x = net.conv("x", 8)
    gain = net.weight(np.ones(8, np.float32))
    for _ in range(3):
        last = net.add("Transpose", net.conv(x, 8, 7, 8), channels=8, perm=[0, 2, 3, 1])
        normal = net.add("LayerNormalization", last, gain, channels=8, axis=-1)
        wide = net.add("MatMul", normal, net.weight(np.eye(8, dtype=np.float32)), channels=8)
        x = net.add("Add", net.add("Transpose", wide, channels=8, perm=[0, 3, 1, 2]), x, channels=8)
    model = net.model([net.add("GlobalAveragePool", x, channels=8)], False)
    program = compile_model(model)
    labels = [program.kernels[it.kernel].label.partition(":")[0] for it in program.dispatches]
    assert labels.count("depthwise_last") == labels.count("layer_norm") == 3
    assert "map" not in labels[1:]
    compare(model, program, (2, 3, 9, 10), tolerance=1e-5)


@pytest.mark.parametrize("inputs", [1, 2])
def test_operators_of_others_are_no_convolutions(inputs: int) -> None:
    names = ["x", "scalar"][:inputs]
    nodes = [
        helper.make_node("Conv", names, ["y"], domain="somebody"),
        helper.make_node("Relu", ["y"], ["z"], domain="somebody"),
    ]
    values = [helper.make_tensor_value_info(name, 1, shape) for name, shape in (("x", [1, 3, 4, 4]), ("scalar", []))]
    graph = helper.make_graph(nodes, "g", values, [helper.make_tensor_value_info("z", 1, None)])
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("somebody", 1)]
    module = ir.from_proto(helper.make_model(graph, opset_imports=opsets, ir_version=10))
    assert channels_last_in(module.graph, every=True) == frozenset()


def test_kernels_read_four_neighbouring_channels_and_weights_lie_so() -> None:
    """Of a network that a GPU has in this order without being told to."""
    net = layers("Relu", 6)
    x = net.conv(net.conv(net.nodes[-1].output[0], 8, group=8), 8)
    program = compile_model(net.model([x], False))
    assert (
        sum(isinstance(it, Permuted) for it in program.weights) == 7
    )  # not of the first, which reads an image as it is given
    labels = [program.kernels[it.kernel] for it in program.dispatches]
    assert [it.label for it in labels].count("depthwise_last") == 1
    loads = {it.wgsl for it in labels if it.label == "matmul"}
    at_once = [texts for texts in loads if all("(position: u32, part: u32) -> vec4<f32>" in it for it in texts)]
    assert len(at_once) == len(loads) - 1
    executable = Runner(program).executable
    again = executable.compiled_for(program, {it.name for it in net.weights})
    names = [it.name for it in program.weights if isinstance(it, Permuted)]
    assert len(set(names)) == 7
    for one, other, weight in zip(executable._weights, again._weights, program.weights, strict=True):
        assert (one is other) or not isinstance(weight, Permuted)


def all_last() -> Any:
    return dataclasses.replace(target(), tuning=(tune.use(tune.convolutions.ChannelsLast(2)),))


def compare(model: onnx.ModelProto, program: Program, *shapes: tuple[int, ...], tolerance: float) -> None:
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.graph_optimization_level = (
        ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    )  # it merges pads into pools that it refuses
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    runner = Runner(program)
    kind = helper.tensor_dtype_to_np_dtype(model.graph.input[0].type.tensor_type.elem_type)
    for shape in shapes:
        x = np.random.default_rng(len(shape)).standard_normal(shape).astype(kind)
        try:
            results = runner(x)
        except InputError:  # windows that are larger than what strides have left of the image
            with pytest.raises(Exception, match=r"hape|size|dim"):
                session.run(None, {"x": x})
            continue
        for ours, theirs in zip(results, session.run(None, {"x": x}), strict=True):
            assert ours.shape == theirs.shape
            scale = np.abs(theirs.astype(np.float64)).max(initial=1e-3)
            assert np.abs(ours.astype(np.float64) - theirs).max(initial=0) <= tolerance * scale


@pytest.mark.costly
@pytest.mark.parametrize("free", [False, True], ids=["fixed", "free"])
@pytest.mark.parametrize("seed", range(36))
def test_whatever_follows(seed: int, free: bool) -> None:
    model = network(seed, free)
    shapes = [(2, 3, 9, 10), (1, 3, 16, 7), (3, 3, 9, 10)] if free else [(2, 3, 9, 10)]
    compare(model, compile_model(model, all_last()), *shapes, tolerance=1e-5)


@pytest.mark.costly
@pytest.mark.parametrize("seed", range(24, 30))
def test_of_halves(seed: int) -> None:
    model = network(seed, False, np.float16)
    compare(model, compile_model(model, all_last()), (2, 3, 9, 10), tolerance=1e-2)


def test_what_lies_in_memory_says_of_which_value_and_in_which_order() -> None:
    model = network(3, False)
    x = np.random.default_rng(3).standard_normal((2, 3, 9, 10)).astype(np.float32)
    every = onnx.ModelProto.FromString(model.SerializeToString())
    known = {it.name for it in every.graph.output}
    kind = onnx.TensorProto.FLOAT
    more = [name for node in every.graph.node for name in node.output if name not in known]
    every.graph.output.extend(helper.make_tensor_value_info(name, kind, None) for name in more)
    session = ort.InferenceSession(every.SerializeToString(), providers=["CPUExecutionProvider"])
    wanted = dict(zip((it.name for it in session.get_outputs()), session.run(None, {"x": x}), strict=True))
    runner = Runner(compile_model(model, all_last()))
    compared = 0
    for value, got in runner.stored(x):
        name, axes = model_name(value.name)
        if axes:
            want = wanted[name].transpose(axes)
            assert got.shape == want.shape
            np.testing.assert_allclose(got, want, atol=1e-5 * np.abs(want).max())
            compared += 1
    assert compared
