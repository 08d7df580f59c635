"""What expressions compute with: values in and out are Arrow arrays, one value a row; null in, null out.

Whole numbers are int64 and others float64, whatever width the column has; decimals stay decimals in + - * and
comparisons. `TypeError` says that values of these types do not go together, which no row is to blame for; anything else
that is raised is about some row's value.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

ZONE = r"(Z|z|[+-]\d\d:?\d\d)$"


def number(values: pa.Array) -> pa.Array:
    if types.is_integer(values.type) or types.is_null(values.type):
        return values.cast(pa.int64())
    if types.is_floating(values.type):
        return values.cast(pa.float64())
    if types.is_decimal(values.type):
        return values
    raise TypeError(f"expected a number, found {values.type}")


def real(values: pa.Array) -> pa.Array:
    # Not a checked cast: 2**53 + 1 may lose its last bit, as it does in float().
    return number(values).cast(pa.float64(), safe=False)


def text(values: pa.Array) -> pa.Array:
    if not is_text(values.type) and not types.is_null(values.type):
        raise TypeError(f"expected text, found {values.type}")
    return values.cast(pa.large_string() if types.is_large_string(values.type) else pa.string())


def flag(values: pa.Array) -> pa.Array:
    if not types.is_boolean(values.type) and not types.is_null(values.type):
        raise TypeError(f"expected true or false, found {values.type}")
    return values.cast(pa.bool_())


def time(values: pa.Array) -> pa.Array:
    if not types.is_date(values.type) and not types.is_timestamp(values.type):
        raise TypeError(f"expected a date or time, found {values.type}; cast_timestamp makes one of text")
    return values


def is_text(kind: pa.DataType) -> bool:
    return types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)


def is_number(kind: pa.DataType) -> bool:
    return types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind)


def alike(left: pa.Array, right: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Both of one type, so that they can be compared or stand in one column. Text beside a date is read as a date."""
    if types.is_null(left.type) or types.is_null(right.type):
        kind = right.type if types.is_null(left.type) else left.type
        return left.cast(kind), right.cast(kind)
    if is_number(left.type) and is_number(right.type):
        if types.is_floating(left.type) or types.is_floating(right.type):
            return real(left), real(right)
        return number(left), number(right)
    if is_text(left.type) and is_text(right.type):
        kind = pa.large_string() if types.is_large_string(left.type) else pa.string()
        return left.cast(kind), right.cast(kind)
    if types.is_temporal(left.type) and is_text(right.type):
        return left, right.cast(left.type)
    if types.is_temporal(right.type) and is_text(left.type):
        return left.cast(right.type), right
    if left.type == right.type or (types.is_temporal(left.type) and types.is_temporal(right.type)):
        return left, right
    raise TypeError(f"{left.type} and {right.type} do not go together")


def add(left: pa.Array, right: pa.Array) -> pa.Array:
    if is_text(left.type) or is_text(right.type):
        return concat(left, right)
    return pc.add_checked(*alike(number(left), number(right)))


def subtract(left: pa.Array, right: pa.Array) -> pa.Array:
    return pc.subtract_checked(*alike(number(left), number(right)))


def multiply(left: pa.Array, right: pa.Array) -> pa.Array:
    return pc.multiply_checked(*alike(number(left), number(right)))


def divide(left: pa.Array, right: pa.Array) -> pa.Array:
    return pc.divide_checked(real(left), real(right))


def power(left: pa.Array, right: pa.Array) -> pa.Array:
    return pc.power_checked(*alike(number(left), number(right)))


def floor_divide(left: pa.Array, right: pa.Array) -> pa.Array:
    return _floored(np.floor_divide, left, right)


def remainder(left: pa.Array, right: pa.Array) -> pa.Array:
    return _floored(np.remainder, left, right)


def _floored(operation: Callable[..., np.ndarray], left: pa.Array, right: pa.Array) -> pa.Array:
    """Python's // and %, which round down; Arrow's own division rounds towards zero."""
    left, right = alike(number(left), number(right))
    if types.is_decimal(left.type) or types.is_decimal(right.type):
        left, right = real(left), real(right)
    missing = pc.or_(pc.is_null(left), pc.is_null(right)).to_numpy(zero_copy_only=False)
    dividend, divisor = pc.fill_null(left, 1).to_numpy(), pc.fill_null(right, 1).to_numpy()
    if not divisor[~missing].all():
        raise ZeroDivisionError("divide by zero")
    with np.errstate(all="ignore"):
        return pa.array(operation(dividend, np.where(missing, 1, divisor)), mask=missing)


def compare(function: str, left: pa.Array, right: pa.Array) -> pa.Array:
    left, right = alike(left, right)
    if types.is_null(left.type):
        return pa.nulls(len(left), pa.bool_())
    return pc.call_function(function, [left, right])


def is_in(values: pa.Array, choices: list[Any]) -> pa.Array:
    wanted = pa.array(choices)
    values, wanted = alike(values, wanted) if choices else (values, wanted.cast(values.type))
    if types.is_null(values.type):
        return pa.nulls(len(values), pa.bool_())
    found = pc.is_in(values, value_set=wanted)
    return pc.if_else(pc.is_valid(values), found, pa.scalar(None, pa.bool_()))


def whole(values: pa.Array) -> pa.Array:
    """float64 without fraction as int64. NaN, infinity and what is beyond 64 bits raise `pa.ArrowInvalid`."""
    return values.cast(pa.int64())


def rounded(values: pa.Array, digits: int | None = None) -> pa.Array:
    values = number(values)
    if digits is None:
        return whole(pc.round(values, round_mode="half_to_even"))
    return pc.round(values, ndigits=digits, round_mode="half_to_even")


def length(values: pa.Array) -> pa.Array:
    kind = values.type
    if is_text(kind) or types.is_null(kind):
        return pc.utf8_length(text(values)).cast(pa.int64())
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return pc.list_value_length(values).cast(pa.int64())
    if types.is_binary(kind) or types.is_large_binary(kind):
        return pc.binary_length(values).cast(pa.int64())
    raise TypeError(f"expected text, a list or bytes, found {kind}")


def concat(*values: pa.Array) -> pa.Array:
    parts = [text(value) for value in values]
    kind = pa.large_string() if any(types.is_large_string(part.type) for part in parts) else pa.string()
    return pc.binary_join_element_wise(*[part.cast(kind) for part in parts], pa.scalar("", kind))


def cast_int(values: pa.Array) -> pa.Array:
    if is_text(values.type):
        return pc.utf8_trim_whitespace(text(values)).cast(pa.int64())
    if types.is_boolean(values.type):
        return values.cast(pa.int64())
    return whole(pc.trunc(number(values)))


def cast_float(values: pa.Array) -> pa.Array:
    if is_text(values.type):
        return pc.utf8_trim_whitespace(text(values)).cast(pa.float64())
    return values.cast(pa.float64()) if types.is_boolean(values.type) else real(values)


def cast_timestamp(values: pa.Array) -> pa.Array:
    """Microseconds in UTC, without a zone. Text is ISO 8601; one without an offset is taken as UTC."""
    if not is_text(values.type):
        return values.cast(pa.timestamp("us"))
    values = pc.utf8_trim_whitespace(text(values))
    zoned = pc.fill_null(pc.match_substring_regex(values, ZONE), False)
    without = pc.if_else(zoned, None, values).cast(pa.timestamp("us"))
    return pc.coalesce(
        without, pc.if_else(zoned, values, None).cast(pa.timestamp("us", "UTC")).cast(pa.timestamp("us"))
    )


@dataclass(frozen=True)
class Function:
    """`compute` takes arrays, then `literals`: plain values of these types, of which the last `optional` may lack."""

    usage: str
    compute: Callable[..., pa.Array]
    literals: tuple[type, ...] = ()
    optional: int = 0
    arrays: int = 1


FUNCTIONS = {
    "abs": Function("abs(number)", lambda x: pc.abs_checked(number(x))),
    "round": Function("round(number, digits)", rounded, (int,), optional=1),
    "floor": Function("floor(number)", lambda x: whole(pc.floor(number(x)))),
    "ceil": Function("ceil(number)", lambda x: whole(pc.ceil(number(x)))),
    "sqrt": Function("sqrt(number)", lambda x: pc.sqrt_checked(real(x))),
    "log": Function("log(number)", lambda x: pc.ln_checked(real(x))),
    "exp": Function("exp(number)", lambda x: pc.exp(real(x))),
    "is_nan": Function("is_nan(number)", lambda x: pc.is_nan(number(x))),
    "lower": Function("lower(text)", lambda x: pc.utf8_lower(text(x))),
    "upper": Function("upper(text)", lambda x: pc.utf8_upper(text(x))),
    "strip": Function("strip(text)", lambda x: pc.utf8_trim_whitespace(text(x))),
    "length": Function("length(text, list or bytes)", length),
    "contains": Function("contains(text, 'part')", lambda x, part: pc.match_substring(text(x), part), (str,)),
    "starts_with": Function("starts_with(text, 'part')", lambda x, part: pc.starts_with(text(x), part), (str,)),
    "ends_with": Function("ends_with(text, 'part')", lambda x, part: pc.ends_with(text(x), part), (str,)),
    "matches": Function("matches(text, 'regex')", lambda x, regex: pc.match_substring_regex(text(x), regex), (str,)),
    "replace": Function(
        "replace(text, 'old', 'new')", lambda x, old, new: pc.replace_substring(text(x), old, new), (str, str)
    ),
    "substring": Function(
        "substring(text, start, stop)",
        lambda x, start, stop=None: pc.utf8_slice_codeunits(text(x), start, stop),
        (int, int),
        optional=1,
    ),
    "concat": Function("concat(text, text, ...)", concat, arrays=-1),
    "year": Function("year(time)", lambda x: pc.year(time(x))),
    "month": Function("month(time)", lambda x: pc.month(time(x))),
    "day": Function("day(time)", lambda x: pc.day(time(x))),
    "hour": Function("hour(time)", lambda x: pc.hour(time(x).cast(pa.timestamp("us", getattr(x.type, "tz", None))))),
    "cast_int": Function("cast_int(value)", cast_int),
    "cast_float": Function("cast_float(value)", cast_float),
    "cast_string": Function("cast_string(value)", lambda x: x.cast(pa.string())),
    "cast_timestamp": Function("cast_timestamp(text)", cast_timestamp),
}
