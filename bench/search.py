"""Steps per second of BeamSearch, a node with the decoder as its body: `python -m bench.search [--layers 4] [--hidden 256]
[--beams 4]`.

The decoder is a GPT of random parameters. Runs are timed on the CPU provider and on this one, in turns; their sequences must be
equal. A step is one token of all beams; the prompt counts as one.
"""

from __future__ import annotations

import argparse
import math
import time
from typing import Any

import numpy as np
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

import onnxruntime_ep_wgpu as webgpu_ep

node, info = helper.make_node, helper.make_tensor_value_info
F, I = TensorProto.FLOAT, TensorProto.INT32  # noqa: E741
LONGEST = 1024


class Decoder:
    """A graph that is built layer by layer."""

    def __init__(self, vocabulary: int, hidden: int, layers: int, heads: int) -> None:
        self.chance, self.weights, self.nodes = np.random.default_rng(0), [], []
        size = hidden // heads
        self.constant("split", np.array([0, 0, heads, size]))
        self.constant("merged", np.array([0, 0, hidden]))
        self.constant("axis_0", np.array([0]))
        self.constant("axes_1_2", np.array([1, 2]))
        for name, value in (("scale", 1 / math.sqrt(size)), ("one", 1.0), ("much", -1e4)):
            self.constant(name, np.array(value, np.float32))
        x = self.make("Add", self.make("Gather", self.weight(vocabulary, hidden), "input_ids"),
                      self.make("Gather", self.weight(LONGEST, hidden), "position_ids"))  # fmt: skip
        hidden_keys = self.make("Sub", "one", self.make("Cast", "attention_mask", to=F))
        self.mask = self.make("Unsqueeze", self.make("Mul", hidden_keys, "much"), "axes_1_2")
        for layer in range(layers):
            x = self.layer(layer, x, hidden)
        self.make("MatMul", x, self.weight(hidden, vocabulary), made="logits")
        cache = [2, "rows", heads, "before", size]
        after = [2, "rows", heads, "all", size]
        inputs = [info(name, I, ["rows", "length"]) for name in ("input_ids", "position_ids")]
        inputs += [info("attention_mask", I, ["rows", "all"]), *(info(f"past_{k}", F, cache) for k in range(layers))]
        outputs = [info("logits", F, ["rows", "length", vocabulary])]
        outputs += [info(f"present_{k}", F, after) for k in range(layers)]
        self.graph = helper.make_graph(self.nodes, "decoder", inputs, outputs, self.weights)

    def constant(self, name: str, value: np.ndarray) -> str:
        self.weights.append(numpy_helper.from_array(value, name))
        return name

    def weight(self, *shape: int) -> str:
        values = self.chance.standard_normal(shape) / math.sqrt(shape[0])
        return self.constant(f"w{len(self.weights)}", values.astype(np.float32))

    def make(self, operator: str, *read: str, made: str = "", **attributes: Any) -> str:
        made = made or f"v{len(self.nodes)}"
        self.nodes.append(node(operator, list(read), [made], **attributes))
        return made

    def layer(self, number: int, x: str, hidden: int) -> str:
        rows = self.make("LayerNormalization", x, self.weight(hidden), self.weight(hidden), axis=-1)
        q, k, v = (
            self.make("Transpose", self.make("Reshape", self.make("MatMul", rows, self.weight(hidden, hidden)), "split"),
                      perm=[0, 2, 1, 3])
            for _ in range(3)
        )  # fmt: skip
        new = self.make("Concat", *(self.make("Unsqueeze", it, "axis_0") for it in (k, v)), axis=0)
        present = self.make("Concat", f"past_{number}", new, made=f"present_{number}", axis=3)
        halves = [f"half_{number}_{it}" for it in range(2)]
        self.nodes.append(node("Split", [present], halves, axis=0, num_outputs=2))
        keys, values = (self.make("Squeeze", it, "axis_0") for it in halves)
        scores = self.make("MatMul", q, self.make("Transpose", keys, perm=[0, 1, 3, 2]))
        shares = self.make("Softmax", self.make("Add", self.make("Mul", scores, "scale"), self.mask), axis=-1)
        found = self.make("Transpose", self.make("MatMul", shares, values), perm=[0, 2, 1, 3])
        found = self.make("MatMul", self.make("Reshape", found, "merged"), self.weight(hidden, hidden))
        x = self.make("Add", x, found)
        wide = self.make("Relu", self.make("MatMul", x, self.weight(hidden, 4 * hidden)))
        return self.make("Add", x, self.make("MatMul", wide, self.weight(4 * hidden, hidden)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("layers", 4), ("hidden", 256), ("heads", 4), ("vocabulary", 5000), ("beams", 4)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--prompt", type=int, default=16, help="ids of the prompt")
    parser.add_argument("--tokens", type=int, default=40, help="that are generated")
    parser.add_argument("--runs", type=int, default=4)
    args = parser.parse_args()
    graph = Decoder(args.vocabulary, args.hidden, args.layers, args.heads).graph
    last = args.vocabulary - 1
    longest = args.prompt + args.tokens
    scalars = {"longest": longest, "shortest": longest - 1, "beams": args.beams, "returned": 1, "penalty": 1.0}
    made = [
        numpy_helper.from_array(np.array(value, np.float32 if isinstance(value, float) else np.int32), name)
        for name, value in scalars.items()
    ]
    search = node(
        "BeamSearch", ["ids", *scalars], ["sequences"], domain="com.microsoft", decoder=graph, model_type=0,
        eos_token_id=last, pad_token_id=0,
    )  # fmt: skip
    whole = helper.make_graph(
        [search], "search", [info("ids", I, ["b", "s"])], [info("sequences", I, ["b", "r", "l"])], made
    )
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(whole, opset_imports=opsets, ir_version=10).SerializeToString()
    settings = ort.SessionOptions()
    settings.log_severity_level = 4
    sessions = {
        "CPU provider": ort.InferenceSession(model, settings, providers=["CPUExecutionProvider"]),
        "here": webgpu_ep.session(model, sess_options=settings),
    }
    print(f"onnxruntime {ort.__version__}, {webgpu_ep.report(sessions['here']).device}")
    feeds = {"ids": np.random.default_rng(1).integers(1, last, (1, args.prompt)).astype(np.int32)}
    for _ in range(args.runs):
        found, lines = [], []
        for name, session in sessions.items():
            begun = time.perf_counter()
            found.append(session.run(None, feeds)[0])
            lines.append(f"{name} {args.tokens / (time.perf_counter() - begun):.1f} steps/s")
        print(", ".join(lines), "" if np.array_equal(*found) else "sequences differ")


if __name__ == "__main__":
    main()
