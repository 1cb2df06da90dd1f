"""Small Programs, written by hand, that have every feature a layout depends on, each with the values of symbols to try.

Dims are written as text: `"$n 64 //"` is the expression ("$n", 64, "//").
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from hypothesis import strategies as st

from onnxruntime_ep_wgpu.program.dtypes import DType
from onnxruntime_ep_wgpu.program.postfix import Postfix, f32_bits
from onnxruntime_ep_wgpu.program.program import Assertion, Check, Dispatch, Kernel, Program, Storage, Symbol, Value
from onnxruntime_ep_wgpu.program.target import WEB_BASELINE

Case = tuple[Program, list[tuple[int, ...]]]
Text = int | str

F32, I64 = DType.FLOAT32, DType.INT64
EMPTY = Program(
    name="",
    target=WEB_BASELINE,
    symbols=(),
    definitions=(),
    inputs=(),
    outputs=(),
    values=(),
    kernels=(),
    dispatches=(),
)


def dim(text: Text) -> Postfix:
    if isinstance(text, int):
        return text
    return tuple(int(it) if it.lstrip("-").isdigit() else it for it in text.split())


def dims(*texts: Text) -> tuple[Postfix, ...]:
    return tuple(map(dim, texts))


def axes(*names: str) -> tuple[Symbol, ...]:
    """The axes of the first input."""
    return tuple(Symbol(name, 0, axis, False) for axis, name in enumerate(names))


def value(name: str, storage: Storage, *shape: Text, dtype: DType = F32) -> Value:
    return Value(name, dtype, dims(*shape), storage)


def kernel(bindings: str, uniforms: int = 0, variants: int = 1) -> Kernel:
    """`bindings` has an r for each that is read and a w for each that is written."""
    kinds = tuple("read" if it == "r" else "read_write" for it in bindings)
    return Kernel(f"kernel {bindings}", ("",) * variants, kinds, uniforms)


def dispatch(
    number: int, args: Sequence[int], uniforms: Sequence[Text] = (), guards: Sequence[Text] = (1,),
    workgroups: Sequence[Text] = (1,), repeats: Text = 1, ranges: Sequence[tuple[Text, Text] | None] = (),
) -> Dispatch:  # fmt: skip
    bound = tuple(None if it is None else (dim(it[0]), dim(it[1])) for it in ranges)
    return Dispatch(
        kernel=number, args=tuple(args), uniforms=dims(*uniforms), guards=dims(*guards), workgroups=dims(*workgroups),
        origin=("node",), operators=("Op",), flops=0, traffic=0, repeats=dim(repeats), ranges=bound,
    )  # fmt: skip


def grids() -> Case:
    """A grid is folded above 65,535 workgroups; nothing is dispatched for an empty result."""
    program = replace(
        EMPTY, name="grids", symbols=axes("n"), inputs=(0,), outputs=(1,),
        values=(value("x", Storage.INPUT, "$n"), value("y", Storage.OUTPUT, "$n")),
        kernels=(kernel("rw"),), dispatches=(dispatch(0, (0, 1), workgroups=("$n",)), dispatch(0, (0, 1))),
    )  # fmt: skip
    return program, [(0,), (1,), (65535,), (65536,), (65537,), (131070,), (131071,), (4_000_000,), (2**31,)]


BITS, INFINITE = f32_bits(0.52), f32_bits(float("inf"))


def arithmetic() -> Case:
    """Every operation, in definitions and outside; negative numbers, division by zero, beyond 2**32 and 2**53."""
    definitions = {
        "difference": "$a $b -1 * +",
        "square": "$difference $difference *",
        "large": f"$a {2**31} * {2**31} * $b +",
        "unused": "$a 0 //",
        "seven": 7,
    }
    elements = (
        "$difference $b //", "$difference $b %", "$difference $b tdiv", "$a $b min", "$a $b max", "$a $b <",
        "$a $b <=", "$a $b ==", "$difference 3 5 ?", "$a $b bcast", "$b $a bcast", "$square", "$large", "$large -1 *",
        "$large 3 //", "$large $seven -1 * tdiv", "$large -7 %", "$large -1 * 7 //", "$a 0 %", "$a 0 tdiv", "$a 0 //",
        f"$a {BITS} scaled", f"$b {BITS} scaled", -(2**63), 2**63 - 1,
    )  # fmt: skip
    values = (
        value("x", Storage.INPUT, "$a", "$b"),
        Value("host", I64, (len(elements),), Storage.HOST, elements=dims(*elements)),
        value("y", Storage.OUTPUT, "$a $b <", "$a $b max"),
    )
    uniforms = ("$difference", "$large", "$large -1 *", -1, 2**32 + 5, "$square $seven +")
    program = replace(
        EMPTY, name="arithmetic", symbols=axes("a", "b"), definitions=tuple((k, dim(v)) for k, v in definitions.items()),
        inputs=(0,), outputs=(2,), values=values, kernels=(kernel("rrw", len(uniforms)),),
        dispatches=(dispatch(0, (0, 1, 2), uniforms, workgroups=("$a 1 +",)),),
    )  # fmt: skip
    return program, [(3, 7), (7, 3), (1, 5), (5, 1), (4, 4), (0, 3), (3, 0), (2, 1000), (225, 450), (8191, 8192)]


def variants() -> Case:
    """The first variant whose guard is not 0 runs, with its own number of workgroups."""
    guards: tuple[Text, ...] = ("$n 4 % 0 == 64 $m <= min", "1 $m <", 1)
    groups = ("$m 64 // $n *", "$m", "$n 15 + 16 //")
    program = replace(
        EMPTY, name="variants", symbols=axes("m", "n"), inputs=(0,), outputs=(1,),
        values=(value("x", Storage.INPUT, "$m", "$n"), value("y", Storage.OUTPUT, "$m", "$n")),
        kernels=(kernel("rw", 2, 3),), dispatches=(dispatch(0, (0, 1), ("$m", "$n"), guards, groups),),
    )  # fmt: skip
    return program, [(64, 8), (64, 9), (63, 8), (1, 33), (1, 4), (200, 4)]


def repeats() -> Case:
    """Dispatches that run several times and count, at least once; beside one that does not."""
    values = (value("x", Storage.INPUT, "$n"), value("h", Storage.TEMP, "$n", 2), value("y", Storage.OUTPUT, "$n", 2))
    counted = ("$@repetition", "$done", "$n $done -1 * + 100 min")
    program = replace(
        EMPTY, name="repeats", symbols=axes("n"), definitions=(("done", dim("$@repetition 100 *")),), inputs=(0,),
        outputs=(2,), values=values, kernels=(kernel("rw"), kernel("rw", 3)),
        dispatches=(
            dispatch(0, (0, 1)),
            dispatch(1, (1, 2), counted, workgroups=(2,), repeats="$n 1 + 100 //"),
            dispatch(1, (1, 2), (5, 6, 7), workgroups=(70000,), repeats=2),
        ),
    )  # fmt: skip
    return program, [(0,), (1,), (99,), (199,), (350,)]


def ranges() -> Case:
    """Parts of tensors are bound: at fixed places, and one that moves with each repetition."""
    values = (value("x", Storage.INPUT, "$n"), value("t", Storage.TEMP, "$n"), value("y", Storage.OUTPUT, "$n"))
    half, rest = "$n 8 // 16 *", "$n 4 * $n 8 // -16 * +"
    moving = ("$@repetition 1024 *", "$n 4 * $@repetition -1024 * + 1024 min")
    program = replace(
        EMPTY, name="ranges", symbols=axes("n"), inputs=(0,), outputs=(2,), values=values,
        kernels=(kernel("rrw", 1), kernel("rw", 1)),
        dispatches=(
            dispatch(0, (0, 0, 1), ("$n",), ranges=((0, half), (half, rest), None)),
            dispatch(1, (1, 2), ("$@repetition 256 *",), ranges=(moving, moving), repeats="$n 255 + 256 //"),
            dispatch(1, (0, 2), (0,), ranges=((0, "$n 4 *"), None)),
        ),
    )  # fmt: skip
    return program, [(0,), (8,), (256,), (257,), (1000,)]


def bounds() -> Case:
    """What no Program of the compiler comes to, and a damaged one may: sizes that grow with each definition, too many workgroups or
    repetitions, no variant, ranges beyond their tensor, elements that are not as many as the shape says, infinite sizes."""
    squares = {f"s{k}": f"$s{k - 1} $s{k - 1} *" if k else "$a $a *" for k in range(24)}
    values = (
        value("x", Storage.INPUT, "$a", "$b", "$c", "$d", "$e", "$f"),
        Value("host", I64, dims("$e"), Storage.HOST, elements=dims(f"$a {INFINITE} scaled", f"$a {2**40} * {BITS} scaled")),
        value("y", Storage.OUTPUT, 8),
    )  # fmt: skip
    program = replace(
        EMPTY, name="bounds", symbols=axes(*"abcdef"), definitions=tuple((k, dim(v)) for k, v in squares.items()),
        inputs=(0,), outputs=(2,), values=values, kernels=(kernel("rw", 1),),
        dispatches=(
            dispatch(0, (1, 2), ("$s23 2 min",), guards=("$d",), workgroups=(f"$b {2**20} * {2**20} *",)),
            dispatch(0, (1, 2), (0,), repeats="$c", ranges=((0, 16), ("$f 4 *", 4))),
        ),
    )  # fmt: skip
    right = (1, 0, 2, 1, 2, 0)
    wrong = [(3, 0), (1, 1), (1, 0, 2**21), (1, 0, 2, 0), (1, 0, 2, 1, 3), (1, 0, 2, 1, 2, 8), (2**60, 0)]
    return program, [right, *((*it, *right[len(it) :]) for it in wrong)]


def slots() -> Case:
    """A chain, a fork and a value that lives long, with sizes that change places; elements of 4, 8, 16 and 64 bits."""
    shapes: list[tuple[Text, ...]] = [
        ("$a",), ("$b",), ("$a", 3), ("$b", 5), ("$a", "$b"), ("$a", 2), (7,), ("$b", "$b"),
    ]  # fmt: skip
    types = [F32, F32, DType.INT8, DType.INT4, DType.FLOAT16, I64, F32, DType.BOOL]
    values = [value("x", Storage.INPUT, "$a", "$b"), value("y", Storage.OUTPUT, "$a")]
    values += [
        value(f"t{k}", Storage.TEMP, *shape, dtype=dtype)
        for k, (shape, dtype) in enumerate(zip(shapes, types, strict=True))
    ]
    steps = [(0, 2), (2, 3), (2, 4), (4, 4, 5), (3, 5, 6), (6, 7), (2, 7, 8), (8, 9), (9, 1)]
    program = replace(
        EMPTY, name="slots", symbols=axes("a", "b"), inputs=(0,), outputs=(1,), values=tuple(values),
        kernels=tuple(kernel("r" * (len(args) - 1) + "w") for args in steps),
        dispatches=tuple(dispatch(k, args) for k, args in enumerate(steps)),
    )  # fmt: skip
    return program, [(1, 1), (3, 50), (50, 3), (17, 17), (5, 0), (1001, 2)]


def ways() -> Case:
    """Two ways to one result, of which one runs: by parts, of which there are many, or at once. What only the other one has takes
    no memory, and the sizes decide which that is."""
    values = (
        value("x", Storage.INPUT, "$a", "$b"), value("y", Storage.OUTPUT, "$a"), value("scaled", Storage.TEMP, "$a", "$b"),
        value("parts", Storage.TEMP, "$a", 64, 16), value("sums", Storage.TEMP, "$a", 64), value("sum", Storage.TEMP, "$a"),
    )  # fmt: skip
    few, many = "$a 4 <", "1 $a 4 < -1 * +"
    program = replace(
        EMPTY, name="ways", symbols=axes("a", "b"), inputs=(0,), outputs=(1,), values=values,
        kernels=(kernel("rw"), kernel("rww"), kernel("rrw")),
        dispatches=(
            dispatch(0, (0, 2)), dispatch(1, (2, 3, 4), workgroups=(few,)),
            dispatch(2, (3, 4, 5), workgroups=(few,), repeats="$b"), dispatch(0, (2, 5), workgroups=(many,)),
            dispatch(0, (5, 1)),
        ),
    )  # fmt: skip
    return program, [(1, 1), (3, 2), (4, 2), (100, 7), (2, 900), (0, 3)]


def aliases() -> Case:
    """An output that begins as an input, in runs in which both have one shape and are not empty; else a dispatch copies."""
    values = (
        value("new", Storage.INPUT, "$n"), value("past", Storage.INPUT, "$p"), value("other", Storage.INPUT, 3),
        value("present", Storage.OUTPUT, "$p $n max"), value("y", Storage.OUTPUT, 3),
    )  # fmt: skip
    program = replace(
        EMPTY, name="aliases", symbols=(*axes("n"), Symbol("p", 1, 0, False)), inputs=(0, 1, 2), outputs=(3, 4),
        values=values, kernels=(kernel("rw"),), aliases=((3, 1), (4, 2)),
        dispatches=(
            dispatch(0, (1, 3), workgroups=("1 $p $p $n max == -1 * +",)), dispatch(0, (0, 3)), dispatch(0, (0, 4)),
        ),
    )  # fmt: skip
    return program, [(1, 8), (8, 8), (9, 8), (1, 0), (0, 0)]


def checks() -> Case:
    """Conditions that fail with a message; a limit only when nothing else is wrong; the shape of a result below 0."""
    names = tuple(f"d{k}" for k in range(12))
    symbols = (*axes("rows", "x.shape[1]", *names), Symbol("k", 1, 0, True), Symbol("l", 1, 1, True))
    values = (
        value("x", Storage.INPUT, *(f"${it.name}" for it in symbols[:-2])),
        value("k", Storage.INPUT, 2, dtype=I64),
        value("y", Storage.OUTPUT, "$rows", "$l $k -1 * +"),
        value("", Storage.TEMP, "$rows -3 +"),
    )
    program = replace(
        EMPTY, name="checks", symbols=symbols, inputs=(0, 1), outputs=(2,), values=values, kernels=(kernel("rw"),),
        definitions=(("twice", dim("$rows 2 *")),), message_definitions=(("thrice", dim("$twice $rows +")),),
        checks=(
            Check(dim("$rows 100 <="), "at most {} of {} rows, {{and}} {}", dims(100, "$rows", "$thrice"), True),
            Check(dim("$k $rows <"), "k is {}, there are {} rows", dims("$k", "$rows")),
            Check(dim("0 $k <="), "k is negative: {}", dims("$k")),
        ),
        assertions=(Assertion(1, dim("$rows -1 *"), dim("$rows -1 +"), "axis 0 of x", ("node",)),),
        dispatches=(dispatch(0, (0, 2)),),
    )  # fmt: skip
    tried = [(5, 1, 4), (200, 1, 4), (200, 300, 4), (5, 9, 12), (5, -1, 4), (5, 4, 3), (3, 0, 0), (2, 0, 0)]
    return program, [(rows, 2, *(1,) * 12, k, length) for rows, k, length in tried]


def every() -> Iterator[Case]:
    for make in (grids, arithmetic, variants, repeats, ranges, bounds, slots, ways, aliases, checks):
        yield make()


_EXTENTS = ("$a", "$b", "$a $b *", "$a 3 //", "$b 4 min", 2)
_NUMBERS = ("$a", "$b", "$a $b +", "$b 2 //", 7)
_GUARDS = ("$a 3 <", "$a $b <", "$b 1 min")


def drawn(data: st.DataObject) -> Program:
    """Any Program with symbols a and b: weights, values on the host, intermediate values, dispatches with variants, some of them
    repeated or with ranges."""

    def some(texts: Sequence[Text], least: int = 0) -> list[Text]:
        return data.draw(st.lists(st.sampled_from(texts), min_size=least, max_size=2))

    values = [
        value("x", Storage.INPUT, "$a", "$b"),
        value("z", Storage.INPUT, *some(_EXTENTS)),
        value("y", Storage.OUTPUT, "$a"),
    ]
    values.append(replace(value("w", Storage.WEIGHT, 8), weight=0))
    values.append(Value("h", I64, (2,), Storage.HOST, elements=dims("$b", "$a 3 <")))
    dispatches, kernels = [], []
    for _ in range(data.draw(st.integers(1, 7))):
        read = data.draw(
            st.lists(st.sampled_from([k for k, it in enumerate(values) if k != 2]), min_size=1, max_size=3, unique=True)
        )
        last = data.draw(st.booleans())
        if not last:
            values.append(value("t", Storage.TEMP, *some(_EXTENTS)))
        args, uniforms = [*read, 2 if last else len(values) - 1], some(_NUMBERS)
        guards = [*some(_GUARDS), 1]
        repeats: Text = data.draw(st.sampled_from([1, 1, 1, "$a", 2]))
        kernels.append(kernel("r" * len(read) + "w", len(uniforms), len(guards)))
        dispatches.append(
            dispatch(
                len(kernels) - 1, args, uniforms, guards, [data.draw(st.sampled_from(("$a", "$b", 1))) for _ in guards],
                repeats, [(0, 4), *[None] * len(read)] if data.draw(st.integers(0, 4)) == 0 else (),
            )
        )  # fmt: skip
    return replace(
        EMPTY, name="drawn", symbols=axes("a", "b"), inputs=(0, 1), outputs=(2,), values=tuple(values),
        kernels=tuple(kernels), dispatches=tuple(dispatches), weights=(),
    )  # fmt: skip
