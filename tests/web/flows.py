"""Models that take several Programs, each with the runs that say something about it. A text is a graph as onnx.parser reads it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx

F, I64 = np.float32, np.int64
X = np.random.default_rng(0).normal(size=(2, 3)).astype(F)
LONG = np.random.default_rng(1).normal(size=(5, 3)).astype(F)
ABOVE, BELOW = np.abs(X), -np.abs(X)


@dataclass(frozen=True)
class Case:
    """`reads` are how often each of `runs` waits for the GPU: once for all results that are not in memory, and for what decides."""

    name: str
    text: str
    runs: list[dict[str, Any]]
    reads: list[int] | None = field(default=None)

    @property
    def model(self) -> onnx.ModelProto:
        return onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 18]> g {self.text}')


def count(value: int) -> np.ndarray[Any, Any]:
    return np.array(value, I64)


SCAN = """
    s, o, p = Scan <num_scan_inputs = 2, scan_input_axes = {axes}, scan_input_directions = {directions},
        scan_output_axes = {to}, scan_output_directions = {back},
        body = b (float[3] h0, float[3] xi, float wi) => (float[3] h1, float[3] oi, bool pi) {{
            t = Mul (xi, wi)  h1 = Add (h0, t)  oi = Neg (h1)  r = ReduceSum <keepdims = 0> (oi)  pi = Greater (r, zero) }}>
        (h, x, w) }}"""
SCANNED = {"h": X[0], "w": LONG[:, 0].copy()}

CASES = [
    Case(
        "a condition that kernels make",
        """(float[n,3] x) => (float[n,3] y, float[n,3] z) <float zero = {0.0}> {
            s = ReduceSum <keepdims = 0> (x)  c = Greater (s, zero)  e = Exp (x)
            y, z = If (c) <then_branch = t () => (float[n,3] a, float[n,3] b) { a = Neg (e)  b = Identity (x) },
                           else_branch = f () => (float[n,3] d, float[n,3] g) { d = Add (e, x)  g = Relu (x) }> }""",
        [{"x": ABOVE}, {"x": BELOW}, {"x": np.zeros((0, 3), F)}],
        [2, 2, 1],
    ),
    Case(
        "a condition in memory",
        """(float[n,3] x, bool c) => (float[n,3] y) {
            y = If (c) <then_branch = t () => (float[n,3] a) { a = Neg (x) },
                        else_branch = e () => (float[n,3] d) { k = Constant <value_float = 2.0> ()  d = Mul (x, k) }> }""",
        [{"x": X, "c": np.array(True)}, {"x": X, "c": np.array(False)}],
        [1, 1],
    ),
    Case(
        "sizes decide, and ranks stay",
        """(float[n,3] x) => (float[a,b] y) <int64 one = {1}, int64 zero = {0}> {
            s = Shape (x)  rows = Gather (s, zero)  c = Equal (rows, one)
            y = If (c) <then_branch = t () => (float[p,q] v) { v = Concat <axis = 0> (x, x) },
                        else_branch = e () => (float[p2,q2] u) { u = Concat <axis = 1> (x, x) }> }""",
        [{"x": X}, {"x": X[:1]}],
        [1, 1],
    ),
    Case(
        "branches in a loop",
        """(float[n,3] x, int64 m) => (float[p,q] y, int64 large) <float most = {50.0}, int64 zero = {0}, int64 one = {1}> {
            y, large = Loop (m, , x, zero) <body = b (int64 i, bool c, float[p,q] s, int64 k)
                => (bool c2, float[p,q] s2, int64 k2) {
                s1 = Add (s, s)  t = ReduceSum <keepdims = 0> (s1)  big = Greater (t, most)
                s2, k2 = If (big) <then_branch = v () => (float[p,q] u, int64 ku) { u = Neg (s1)  ku = Add (k, one) },
                                   else_branch = w () => (float[p,q] o, int64 ko) { o = Add (s1, x)  ko = Identity (k) }>
                c2 = Identity (c) }> }""",
        [{"x": ABOVE, "m": count(7)}, {"x": X, "m": count(0)}],
        [8, 1],
    ),
    Case(
        "rounds until kernels say stop",
        """(float[n,3] x) => (float[p,q] y, float[r,p2,q2] all) <float most = {1000.0}, bool yes = {1}> {
            y, all = Loop ( , yes, x) <body = b (int64 i, bool c, float[p,q] s) => (bool c2, float[p,q] s2, float[p,q] o) {
                s2 = Add (s, s)  t = ReduceSum <keepdims = 0> (s2)  c2 = Less (t, most)  o = Neg (s2) }> }""",
        [{"x": ABOVE}, {"x": ABOVE / 2**20}],
        [11, 31],
    ),
    Case(
        "rounds that the host counts",
        """(float[n,3] x, int64 m) => (float[p,q] y, int64 j) <int64 one = {1}, int64 zero = {0}, bool yes = {1}> {
            y, j = Loop ( , yes, x, zero) <body = b (int64 i, bool c, float[p,q] s, int64 k)
                => (bool c2, float[p,q] s2, int64 k2) { s2 = Add (s, s)  k2 = Add (k, one)  c2 = Less (k2, m) }> }""",
        [{"x": X, "m": count(5)}],
        [1],
    ),
    Case(
        "no round",
        """(float[n,3] x, int64 m, bool go) => (float[p,q] y, float[r,s,3] o, float[v] w) {
            y, o, w = Loop (m, go, x) <body = b (int64 i, bool c, float[p,q] s) => (bool c2, float[p,q] s2, float[s,3] t, float u) {
                s2 = Add (s, s)  t = Neg (s)  u = ReduceSum <keepdims = 0> (s)  c2 = Not (c) }> }""",
        [{"x": X, "m": count(k), "go": np.array(go)} for k, go in ((0, True), (3, False), (-1, True), (3, True))],
        [0, 0, 0, 1],
    ),
    Case(
        "a state that grows, by the number of the round",
        """(float[n,3] x, int64 m) => (float[a,b] z, float[r,3] o)
            <float[1,3] w = {0, 0, 0}, int64[1] zero = {0}, int64[1] one = {1}> {
            z, o = Loop (m, , w) <body = b (int64 i, bool c, float[a,b] s) => (bool c2, float[a,b] s2, float[3] row) {
                row = Gather (x, i)  k = Unsqueeze (i, zero)  e = Add (k, one)  piece = Slice (x, zero, e, zero)
                s2 = Concat <axis = 0> (s, piece)  c2 = Identity (c) }> }""",
        [{"x": LONG, "m": count(5)}],
        [1],
    ),
    Case(
        "loops in loops",
        """(float[n,3] x, int64 m) => (float[p,q] y) <int64 two = {2}> {
            y = Loop (m, , x) <body = b (int64 i, bool c, float[p,q] s) => (bool c2, float[p,q] s2) {
                s1 = Loop (two, , s) <body = d (int64 j, bool e, float[p,q] u) => (bool e2, float[p,q] u2) {
                    u2 = Add (u, x)  e2 = Identity (e) }>
                k = Cast <to = 1> (i)  s2 = Add (s1, k)  c2 = Identity (c) }> }""",
        [{"x": X, "m": count(3)}, {"x": X, "m": count(100)}],
        [1, 1],
    ),
    Case(
        "narrow elements side by side",
        """(float16[n,3] x, int64 m) => (float16[a,b,c] y, bool[d,e,f] z, int8[r] k) <bool yes = {1}> {
            y, z, k = Loop (m, yes) <body = b (int64 i, bool c) => (bool c2, float16[p,q] s, bool[p,q] t, int8 u) {
                h = Cast <to = 10> (i)  s = Mul (x, h)  t = Greater (s, h)  u = Cast <to = 3> (i)  c2 = Identity (c) }> }""",
        [{"x": X.astype(np.float16), "m": count(3)}, {"x": X.astype(np.float16), "m": count(0)}],
    ),
    Case(
        "inputs and constants that come out again",
        """(float[n,3] x, bool c) => (float[n,3] y, float[n,3] y2, float[n,3] x2, float[3] w) {
            w = Constant <value = float[3] {1, 2, 3}> ()  x2 = Identity (x)
            y = If (c) <then_branch = t () => (float[n,3] a) { a = Neg (x) },
                        else_branch = e () => (float[n,3] d) { d = Identity (x) }>
            y2 = Identity (y) }""",
        [{"x": X, "c": np.array(False)}],
    ),
    Case(
        "as many elements as data says",
        """(float[n,3] x) => (float[k] y, int64[2,k] z) <float zero = {0.0}, int64[1] flat = {-1}> {
            c = Greater (x, zero)  z = NonZero (c)  f = Reshape (x, flat)  g = Reshape (c, flat)
            p = Compress (f, g)  y = Exp (p) }""",
        [{"x": X}, {"x": ABOVE}, {"x": BELOW}],
        [2, 2, 1],
    ),
    Case(
        "sizes that kernels make",
        """(float[n,3] x, int64[2] s) => (float[a,b] y) <int64 one = {1}> {
            m = Neg (x)  r = ReduceMax <keepdims = 0> (m)  k = Cast <to = 7> (r)  j = Abs (k)  t = Add (s, j)
            z = ConstantOfShape <value = float[1] {1.0}> (t)  y = Exp (z) }""",
        [{"x": X, "s": np.array([2, 3], I64)}, {"x": 3 * X, "s": np.array([0, 3], I64)}],
        [2, 2],
    ),
    Case(
        "a scan",
        "(float[3] h, float[n,3] x, float[n] w) => (float[3] s, float[a,b] o, bool[c] p) <float zero = {0.0}> {"
        + SCAN.format(axes=[0, 0], directions=[0, 0], to=[0, 0], back=[0, 0]),
        [{"x": LONG, **SCANNED}],
        [1],
    ),
    Case(
        "a scan along other axes, backwards",
        "(float[3] h, float[3,n] x, float[n] w) => (float[3] s, float[a,b] o, bool[c] p) <float zero = {0.0}> {"
        + SCAN.format(axes=[1, 0], directions=[1, 0], to=[1, 0], back=[1, 1]),
        [{"x": np.ascontiguousarray(LONG.T), **SCANNED}],
        [1],
    ),
]


def voice() -> Case:
    """Like Silero VAD: the rate of the samples chooses a network, each of which has states that go round."""
    rng = np.random.default_rng(5)

    def network(name: str, taps: int) -> str:
        weights = {
            "w": (4, 1, taps),
            "lw": (1, 16, 4),
            "lr": (1, 16, 4),
            "lb": (1, 32),
            "v": (1, 4),
        }
        constants = "  ".join(
            f"{name}{key} = Constant <value = float[{','.join(map(str, shape))}]"
            f" {{{', '.join(f'{it:.3f}' for it in rng.normal(size=shape).reshape(-1) / 2)}}}> ()"
            for key, shape in weights.items()
        )
        return f"""() => (float[n,1] {name}o, float[1,n,4] {name}h, float[1,n,4] {name}c) {{ {constants}
            {name}axis = Constant <value_ints = [1]> ()  {name}x = Unsqueeze (x, {name}axis)
            {name}f = Conv <strides = [{taps // 2}]> ({name}x, {name}w)  {name}r = Relu ({name}f)
            {name}t = Transpose <perm = [2, 0, 1]> ({name}r)
            {name}y, {name}h, {name}c = LSTM <hidden_size = 4> ({name}t, {name}lw, {name}lr, {name}lb, , h, c)
            {name}zero = Constant <value_ints = [0]> ()  {name}s = Squeeze ({name}h, {name}zero)
            {name}vt = Transpose ({name}v)  {name}p = MatMul ({name}s, {name}vt)  {name}o = Sigmoid ({name}p) }}"""

    text = f"""(float[n,m] x, float[1,n,4] h, float[1,n,4] c, int64 sr) => (float[n,1] o, float[1,n,4] hn, float[1,n,4] cn)
        <int64 rate = {{16000}}> {{
        fast = Equal (sr, rate)
        o, hn, cn = If (fast) <then_branch = a {network("a", 16)}, else_branch = b {network("b", 8)}> }}"""
    states = {name: rng.normal(size=(1, 2, 4)).astype(F) for name in "hc"}
    x = rng.normal(size=(2, 64)).astype(F)
    runs = [{"x": x, **states, "sr": count(rate)} for rate in (16000, 8000)]
    return Case("a network for each rate", text, runs, [1, 1])


CASES.append(voice())
