"""Feature operators before a model of `ai.onnx.ml`: scaling, replacement, label encoding, selection, concatenation of inputs
to a row.

The weights of these operators are attributes, so they become constants of the lowered graph. Strings and maps stay on the CPU:
they cannot be stored on a device. Integers become f32 where the CPU provider converts them to floats.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from ....errors import UnsupportedError
from ....program.dtypes import DType
from ...dims import Dim, equal, maximum, product
from ..builder import Builder, Operand
from .choices import Flag
from .index import INDICES, along, check_indices, narrowed
from .indexing import gather
from .reduction import reduce_axes
from .registry import ANY, SINGLES, at_least, op

LEARNT = "ai.onnx.ml"
Norm = Literal["MAX", "L1", "L2"]
_LARGEST_KEY = 2**31 - 2  # keys are compared as i32, where a number beyond is one of the two limits
_ANY_NAN = np.float32(np.nan).view(np.int32)
_LOWEST = float(np.finfo(np.float32).min)
_WIDEST = 1 << 24  # columns of one input of a FeatureVectorizer


def rows_of(b: Builder, x: Operand) -> Operand:
    """Returns features as f32 (rows, features). A single row may omit the axis of rows. Raises UnsupportedError for other
    ranks."""
    if x.rank not in (1, 2):
        raise UnsupportedError(f"features must have rank 1 or 2, and {x} is given")
    rows = x if x.rank == 2 else b.reshape(x, (1, *x.shape))
    return b.cast(rows, DType.FLOAT32)


def weights(values: Sequence[float] | np.ndarray) -> np.ndarray:
    """The floats of an attribute as f32."""
    with np.errstate(over="ignore"):
        return np.asarray(values, np.float32)


def _by_feature(b: Builder, x: Operand, **values: np.ndarray) -> dict[str, Operand]:
    """Returns constants that align with the elements of x. They are repeated in row-major order, with the period of axis 1."""
    count = len(next(iter(values.values())))
    if count == 1 or x.rank <= 2:
        return {name: b.constant(value) for name, value in values.items()}
    size = product(x.shape)
    if not isinstance(size, int) or size % count:
        raise UnsupportedError(f"{count} numbers for features of {x}")
    shape = tuple(int(extent) for extent in x.shape if isinstance(extent, int))
    return {name: b.constant(np.resize(value, shape)) for name, value in values.items()}


def _features(x: Operand) -> Dim:
    """The number of features in the row of an element, as operators of any rank count them."""
    return 1 if x.rank == 0 else x.shape[min(x.rank, 2) - 1]


@op("Scaler", domain=LEARNT, types=SINGLES)
def scaler(b: Builder, x: Operand, *, scale: list[float] | None = None, offset: list[float] | None = None) -> Operand:
    """Returns (x - offset) * scale, with a number per feature or one for all."""
    scales, offsets = weights(scale or ()), weights(offset or ())
    if scales.size != offsets.size or not scales.size:
        raise UnsupportedError(
            f"{scales.size} numbers in scale and {offsets.size} in offset: both must have the same number, at least one"
        )
    if scales.size != 1:
        b.require(equal(_features(x), scales.size), "{} features and {} scales", _features(x), scales.size)
    constants = _by_feature(b, x, offset=offsets, scale=scales)
    operands = {"x": b.cast(x, DType.FLOAT32), **constants}
    return b.pointwise("(x - offset) * scale", operands, DType.FLOAT32, x.shape, cost=2)


@op("Normalizer", domain=LEARNT, types=SINGLES)
def normalizer(b: Builder, x: Operand, *, norm: Norm = "MAX") -> Operand:
    """Returns rows divided by their largest element, by the sum of their absolute values or by their length. If that is 0,
    the row is unchanged."""
    rows = rows_of(b, x)
    if norm == "MAX":
        numbers = b.pointwise("where(isnan(x), lowest, x)", {"x": rows}, rows.dtype, lowest=_LOWEST)
        divisor = reduce_axes(b, "ReduceMax", numbers, [1], True)
    else:
        divisor = reduce_axes(b, "ReduceL1" if norm == "L1" else "ReduceSumSquare", rows, [1], True)
    expression = "x / d"
    if norm == "L2":
        expression = "where(x < 0, -sqrt(x * x / d), sqrt(x * x / d))"
    operands = {"x": rows, "d": divisor}
    result = b.pointwise(f"where(d == 0, x, {expression})", operands, rows.dtype, cost=4)
    return b.reshape(result, x.shape)


@op("Binarizer", domain=LEARNT, types=SINGLES)
def binarizer(b: Builder, x: Operand, *, threshold: float = 0.0) -> Operand:
    """Returns 1 above the threshold, else 0. NaN, which is an error in the CPU provider, counts as not above it."""
    limit = float(np.float32(threshold))
    return b.pointwise(f"{x.dtype.compute}(f32(x) > limit)", {"x": x}, x.dtype, limit=limit)


@op("Imputer", domain=LEARNT, types=SINGLES)
def imputer(
    b: Builder,
    x: Operand,
    *,
    imputed_value_floats: list[float] | None = None,
    replaced_value_float: float = 0.0,
    imputed_value_int64s: list[int] | None = None,
    replaced_value_int64: int = 0,
) -> Operand:
    """Replaces one number, which may be NaN, with a number per feature, or with the first one for all features."""
    values: list[float] | list[int] | None = imputed_value_floats if x.dtype.is_float else imputed_value_int64s
    if not values:
        raise UnsupportedError(f"no values to impute in {x}")
    count = _features(x)
    if isinstance(count, int) or x.rank > 2:
        y = _by_feature(b, x, y=_numbers(values if count == len(values) else values[:1], x.dtype))["y"]
    else:
        operands, sizes = {"values": (b.constant(_numbers(values, x.dtype)), (1,))}, {"count": count}
        body = "return values_at(select(0u, feature, $count == #(COUNT)u));"
        y = b.map(body, x.dtype, (count,), ("feature",), (1,), operands, parameters=sizes, COUNT=len(values))
    if x.dtype.is_float and np.isnan(np.float32(replaced_value_float)):
        return b.pointwise("where(isnan(x), y, x)", {"x": x, "y": y}, x.dtype, x.shape)
    replaced = replaced_value_float if x.dtype.is_float else replaced_value_int64
    gone = b.constant(_numbers([replaced], x.dtype))
    return b.pointwise("where(x == gone, y, x)", {"x": x, "y": y, "gone": gone}, x.dtype, x.shape)


def _numbers(values: Sequence[float] | Sequence[int], dtype: DType) -> np.ndarray:
    try:
        return np.asarray(values).astype(dtype.numpy) if dtype.is_float else np.array(values, dtype.numpy)
    except OverflowError:
        raise UnsupportedError(f"attributes contain integers outside the range of {dtype.label}") from None


# ---- labels


def _element_keys(b: Builder, x: Operand) -> Operand:
    """Returns elements as i32 keys that are equal if the elements are: all NaN share a key, and so do both zeros."""
    if not x.dtype.is_float:
        return narrowed(b, x)
    body = "let v = x_at(at); return select(select(0, bitcast<i32>(v), bool_of_f32(v)), i32($NAN), isnan_f32(v));"
    return b.map(body, DType.INT32, x.shape, ("at",), (x.rank,), {"x": (x, (x.rank,))}, NAN=int(_ANY_NAN))


def _table_keys(values: np.ndarray, floats: bool, nan: bool) -> np.ndarray:
    """The same for the keys of a table."""
    if not floats:
        if values.size and (int(values.max()) > _LARGEST_KEY or int(values.min()) < -_LARGEST_KEY):
            raise UnsupportedError(
                f"keys beyond {_LARGEST_KEY} are not supported: keys are compared as 32-bit integers"
            )
        return values.astype(np.int32)
    numbers = values.astype(np.float32)
    bits = np.where(numbers == 0, np.int32(0), numbers.view(np.int32))
    # Version 2 finds no NaN: the key is then one that no element has.
    return np.where(np.isnan(numbers), _ANY_NAN if nan else np.int32(_ANY_NAN + 1), bits)


def table_lookup(b: Builder, x: Operand, keys: np.ndarray, values: np.ndarray, nan: bool = True) -> Operand:
    """Returns values[k] where x equals keys[k], the first of equal keys, and values[-1] where it equals none."""
    found, first = np.unique(_table_keys(keys, x.dtype.is_float, nan), return_index=True)
    ordered = np.append(values[first], values[-1:])
    return b.map(
        "value_of_key",
        DType.of_numpy(values.dtype),
        x.shape,
        ("at",),
        (x.rank,),
        {
            "x": (_element_keys(b, x), (x.rank,)),
            "keys": (b.constant(np.append(found, np.int32(0)).astype(np.int32)), (1,)),
            "values": (b.constant(ordered), (1,)),
        },
        parameters={"count": int(found.size)},
        cost=16,
        iterations=max(1, int(found.size).bit_length() + 1),
    )


@op("LabelEncoder", domain=LEARNT, since=2, types=SINGLES)
def label_encoder(
    b: Builder,
    x: Operand,
    *,
    keys_int64s: list[int] | None = None,
    keys_floats: list[float] | None = None,
    values_int64s: list[int] | None = None,
    values_floats: list[float] | None = None,
    default_int64: int = -1,
    default_float: float = -0.0,
) -> Operand:
    """Maps numbers to numbers. A NaN among the keys matches nothing."""
    keys = _given_list(keys_int64s, keys_floats)
    values = _given_list(values_int64s, values_floats)
    default = default_float if values.dtype == np.float32 else default_int64
    return _encoded(b, x, keys, values, np.array([default], values.dtype), nan=False)


@op("LabelEncoder", domain=LEARNT, since=4, types=SINGLES)
def label_encoder_4(
    b: Builder,
    x: Operand,
    *,
    keys_int64s: list[int] | None = None,
    keys_floats: list[float] | None = None,
    keys_tensor: np.ndarray | None = None,
    values_int64s: list[int] | None = None,
    values_floats: list[float] | None = None,
    values_tensor: np.ndarray | None = None,
    default_int64: int = -1,
    default_float: float = -0.0,
    default_tensor: np.ndarray | None = None,
) -> Operand:
    """Maps numbers to numbers, which may be tensors. A NaN among the keys matches every NaN."""
    keys = _given_list(keys_int64s, keys_floats, keys_tensor)
    values = _given_list(values_int64s, values_floats, values_tensor)
    if default_tensor is not None:
        default = np.asarray(default_tensor).reshape(-1)
    else:
        default = np.array([default_float if values.dtype.kind == "f" else default_int64], values.dtype)
    return _encoded(b, x, keys, values, default, nan=True)


def _given_list(integers: list[int] | None, floats: list[float] | None, tensor: np.ndarray | None = None) -> np.ndarray:
    """Returns the one of an operator's lists that the node has."""
    if tensor is not None:
        return np.asarray(tensor).reshape(-1)
    if floats:
        return weights(floats)
    if integers:
        return np.array(integers, np.int64)
    raise UnsupportedError("the keys or values are not numbers; strings cannot be stored on a device")


def _encoded(b: Builder, x: Operand, keys: np.ndarray, values: np.ndarray, default: np.ndarray, nan: bool) -> Operand:
    if keys.size != values.size or default.size != 1 or default.dtype != values.dtype:
        raise UnsupportedError(
            f"{keys.size} keys, {values.size} values of {values.dtype} and a default of {default.dtype}"
        )
    if x.dtype.numpy != keys.dtype:
        raise UnsupportedError(f"keys of {keys.dtype} do not match {x}")
    if values.dtype == np.float64:
        raise UnsupportedError("values of type float64 are not supported")
    return table_lookup(b, x, keys, np.append(values, default), nan)


@op("OneHotEncoder", domain=LEARNT, types=SINGLES)
def one_hot_encoder(b: Builder, x: Operand, *, cats_int64s: list[int] | None = None, zeros: Flag = 1) -> Operand:
    """Returns 1 at the position of an element's category along a new axis. Floats are truncated to integers.

    Without `zeros`, an unknown category is an error in runs that check everything (validationMode full). Other runs return a
    row of zeros.
    """
    if not cats_int64s:
        raise UnsupportedError("the categories are not integers; strings cannot be stored on a device")
    categories = np.array(cats_int64s, np.int64)
    keys = _table_keys(categories, False, False)
    if np.unique(keys).size != keys.size:
        raise UnsupportedError("a category is duplicated")
    if x.dtype.is_float:
        whole = b.pointwise("where(isnan(x), least, i32(trunc(x)))", {"x": x}, DType.INT32, least=-(2**31))
    else:
        whole = narrowed(b, x)
    if not zeros and b.settings.with_assertions:
        places = np.append(np.arange(keys.size), -1).astype(np.int32)
        b.expect(table_lookup(b, whole, keys, places), 0, keys.size - 1, "the categories")
    operands = {"x": b.reshape(whole, (*x.shape, 1)), "c": b.constant(keys)}
    return b.pointwise("where(x == c, 1.0, 0.0)", operands, DType.FLOAT32, (*x.shape, keys.size))


# ---- columns


@op("ArrayFeatureExtractor", domain=LEARNT, types=ANY, indices=INDICES, ranks={"x": at_least(1)})
def array_feature_extractor(b: Builder, x: Operand, indices: Operand) -> Operand:
    """Gathers elements along the last axis by any number of indices. A single row is a batch of one."""
    check_indices(b, indices, along(x, x.rank - 1)._replace(low=0))
    result = gather(b, x, b.reshape(indices, (indices.size,)) if indices.rank != 1 else indices, axis=-1)
    return b.reshape(result, (1, *result.shape)) if x.rank == 1 else result


@op("FeatureVectorizer", domain=LEARNT, types=SINGLES)
def feature_vectorizer(b: Builder, *xs: Operand, inputdimensions: list[int]) -> Operand:
    """Concatenates the rows of all inputs, each cut or zero-padded to its number of columns."""
    if len(xs) != len(inputdimensions) or not xs or any(not 0 <= it <= _WIDEST for it in inputdimensions):
        raise UnsupportedError(f"{len(xs)} inputs do not match inputdimensions {inputdimensions}")
    parts = [_columns(b, x, width) for x, width in zip(xs, inputdimensions, strict=True)]
    rows = parts[0].shape[0]
    for part in parts[1:]:
        b.require(equal(part.shape[0], rows), "{} rows and {} rows", part.shape[0], rows)
    filled = [it for it in parts if it.shape[1] != 0]
    if len(filled) == 1:
        return filled[0]
    return b.join(filled or parts, 1, (rows, sum(inputdimensions)))


def _columns(b: Builder, x: Operand, width: int) -> Operand:
    if x.rank == 0:
        raise UnsupportedError("a scalar among the features is not supported")
    shape = (1, x.shape[0]) if x.rank == 1 else (x.shape[0], product(x.shape[1:]))
    rows = b.cast(b.reshape(x, shape), DType.FLOAT32)
    if rows.shape[1] == width:
        return rows
    zero = b.constant(np.zeros(1, np.float32))
    wide = b.pad(rows, zero, (0, 0), (rows.shape[0], maximum(rows.shape[1], width)))
    return b.slice(wide, 1, 0, 1, width)
