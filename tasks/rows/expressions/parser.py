"""The one grammar of `filter_rows`, `derive_columns` and a model's `where`: Python's expressions over columns.

    literals     1, 2.5, "text", True, False, None
    columns      price, col("unit price")          col() for names that are no Python names
    arithmetic   + - * / // % ** and unary -       / is true division; // and % round down, as in Python
    text         first + " " + last
    comparisons  == != < <= > >=, also chained     0 < price <= 10; text beside a date or time is read as one
    membership   x in [1, 2], x not in ["a", "b"]  literals only
    null         x is None, x is not None
    logic        and, or, not                      the right side counts only where the left one leaves it open
    choice       a if condition else b, if_else(condition, a, b), coalesce(a, b, ...)
    functions    those of `functions.FUNCTIONS`    matches() searches for an RE2 regular expression anywhere

Null follows SQL: what is computed from a null is null, `null and False` is False, `null or True` is True, a choice
takes a null condition as False, and `filter_rows` keeps only the rows whose condition is True. Whole numbers stay whole
(int64; an overflow fails the row), `round(x)`, `floor(x)` and `ceil(x)` are whole, `round(x, 2)` is not, and ties round
to even. `cast_int` cuts the fraction off. Dividing by zero, a root or logarithm that does not exist, or text that is no
number fails its row alone.

An expression is parsed, never evaluated as Python. This file knows nothing of jobs.
"""

import ast
import difflib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from overnight.tasks.errors import ContractError, RowError
from overnight.tasks.rows.expressions import functions
from overnight.tasks.rows.expressions.functions import FUNCTIONS

CHOICES = {"if_else": "if_else(condition, a, b)", "coalesce": "coalesce(a, b, ...)", "col": "col('column name')"}
DEEPEST = 300  # terms inside one another; a sum of so many columns is one
OPERATORS: dict[type[ast.operator], tuple[str, Callable[[pa.Array, pa.Array], pa.Array]]] = {
    ast.Add: ("+", functions.add),
    ast.Sub: ("-", functions.subtract),
    ast.Mult: ("*", functions.multiply),
    ast.Div: ("/", functions.divide),
    ast.FloorDiv: ("//", functions.floor_divide),
    ast.Mod: ("%", functions.remainder),
    ast.Pow: ("**", functions.power),
}
COMPARISONS: dict[type[ast.cmpop], str] = {
    ast.Eq: "equal",
    ast.NotEq: "not_equal",
    ast.Lt: "less",
    ast.LtE: "less_equal",
    ast.Gt: "greater",
    ast.GtE: "greater_equal",
}
SCALARS = (bool, int, float, str, type(None))


@dataclass(frozen=True)
class _Rows:
    columns: dict[str, pa.Array]
    count: int

    def filter(self, mask: pa.Array) -> "_Rows":
        kept = {name: values.filter(mask) for name, values in self.columns.items()}
        return _Rows(kept, pc.sum(mask).as_py() or 0)


class _Refused(Exception):
    """What Python would parse and the grammar does not have; `offset` in bytes, as `ast` counts."""

    def __init__(self, message: str, offset: int) -> None:
        super().__init__(message)
        self.offset = offset


_Node = Callable[[_Rows], pa.Array]


def _refuse_deep(node: ast.AST) -> None:
    """Raise `RecursionError` beyond `DEEPEST`. Python's own limit is not ours to rely on: libraries raise it."""
    level = [node]
    for _ in range(DEEPEST):
        level = [child for each in level for child in ast.iter_child_nodes(each)]
    if level:
        raise RecursionError


class Expression:
    """A parsed expression. Raises `ValueError` with the position for what the grammar does not have."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.columns: list[str] = []
        text = source.strip().replace("\n", " ")
        before = len(source) - len(source.lstrip())
        try:
            body = ast.parse(text, mode="eval").body
            _refuse_deep(body)
            self._node = self._compile(body)
        except SyntaxError as error:
            place, message = (error.offset, error.msg) if error.offset else (len(text) + 1, "it ends too early")
            raise ValueError(f"{source!r}: at character {before + place}: {message}") from None
        except _Refused as error:
            place = len(text.encode()[: error.offset].decode()) + 1
            raise ValueError(f"{source!r}: at character {before + place}: {error}") from None
        except (RecursionError, MemoryError):
            raise ValueError(f"{source[:60]!r}...: nested too deeply") from None

    def holds(self, table: pa.Table, what: str, stage: str) -> np.ndarray:
        """Whether each row fulfils a condition, which null does not (bool). Raises as `evaluate`."""
        values = self.evaluate(table, what, stage)
        if not pa.types.is_boolean(values.type) and not pa.types.is_null(values.type):
            raise ContractError(
                f"{what}: {self.source!r}: expected true or false, found {values.type}. "
                "Write a condition, for example x != 0.",
                stage,
            )
        found: np.ndarray = pc.fill_null(values.cast(pa.bool_()), False).to_numpy(zero_copy_only=False)
        return found

    def evaluate(self, table: pa.Table, what: str, stage: str) -> pa.Array:
        """One value a row. `what` opens the messages.

        Raises `ContractError` for a column that is not there and for types that do not go together, `RowError` when
        some row's value cannot be computed.
        """
        for name in self.columns:
            if name not in table.column_names:
                raise ContractError(
                    f"{what}: {self.source!r} needs a column {name!r}{_nearest(name, table.column_names)}; "
                    f"the columns are {', '.join(table.column_names)}.",
                    stage,
                )
        try:
            return self._node(_Rows({name: _plain(table[name]) for name in self.columns}, len(table)))
        except (TypeError, pa.ArrowNotImplementedError) as error:
            raise ContractError(f"{what}: {self.source!r}: {error}", stage) from error
        except (pa.ArrowException, ArithmeticError, ValueError) as error:
            raise RowError(f"{what}: {self.source!r}: {error}") from error

    def _compile(self, tree: ast.expr) -> _Node:
        match tree:
            case ast.Constant(value) if isinstance(value, SCALARS):
                return self._literal(tree, value)
            case ast.Name(name):
                return self._column(name)
            case ast.UnaryOp(ast.Not(), operand):
                return _applied("not", lambda x: pc.invert(functions.flag(x)), self._compile(operand))
            case ast.UnaryOp(ast.USub(), operand):
                return _applied("-", lambda x: pc.negate_checked(functions.number(x)), self._compile(operand))
            case ast.UnaryOp(ast.UAdd(), operand):
                return _applied("+", functions.number, self._compile(operand))
            case ast.BinOp(left, operator, right) if type(operator) in OPERATORS:
                return _applied(*OPERATORS[type(operator)], self._compile(left), self._compile(right))
            case ast.BoolOp(operator, values):
                join = _and if isinstance(operator, ast.And) else _or
                return reduce(join, [self._compile(value) for value in values])
            case ast.Compare(left, operators, others):
                operands = [left, *others]
                pairs = zip(operands[:-1], operators, operands[1:], strict=True)
                return reduce(_and, [self._comparison(*pair) for pair in pairs])
            case ast.IfExp(condition, yes, no):
                return _choice(self._compile(condition), self._compile(yes), self._compile(no))
            case ast.Call(ast.Name(name), arguments, []):
                return self._call(tree, name, arguments)
        raise _error(tree, f"{ast.unparse(tree)} is not part of the grammar (columns, literals, operators, functions)")

    def _literal(self, tree: ast.expr, value: Any) -> _Node:
        try:
            scalar = pa.scalar(value)
        except (pa.ArrowException, OverflowError):
            raise _error(tree, f"{value} does not fit into 64 bits") from None
        return lambda rows: pa.repeat(scalar, rows.count)

    def _column(self, name: str) -> _Node:
        if name not in self.columns:
            self.columns.append(name)
        return lambda rows: rows.columns[name]

    def _comparison(self, left: ast.expr, operator: ast.cmpop, right: ast.expr) -> _Node:
        none = isinstance(right, ast.Constant) and right.value is None
        if isinstance(operator, ast.Is | ast.IsNot):
            if not none:
                raise _error(right, "only None may follow is and is not; compare with ==")
            check = pc.is_null if isinstance(operator, ast.Is) else pc.is_valid
            return _applied("is None", check, self._compile(left))
        if isinstance(operator, ast.In | ast.NotIn):
            choices = _literals(right)
            found = _applied("in", lambda x: functions.is_in(x, choices), self._compile(left))
            return found if isinstance(operator, ast.In) else _applied("not in", pc.invert, found)
        if none or (isinstance(left, ast.Constant) and left.value is None):
            raise _error(right, "nothing equals None; write x is None or x is not None")
        function = COMPARISONS[type(operator)]
        compare = lambda x, y: functions.compare(function, x, y)  # noqa: E731
        return _applied(function, compare, self._compile(left), self._compile(right))

    def _call(self, tree: ast.expr, name: str, arguments: list[ast.expr]) -> _Node:
        match name, arguments:
            case "col", [ast.Constant(str(column))]:
                return self._column(column)
            case "if_else", [condition, yes, no]:
                return _choice(self._compile(condition), self._compile(yes), self._compile(no))
            case "coalesce", [_, *_]:
                return reduce(_coalesced, [self._compile(argument) for argument in arguments])
        if name in CHOICES:
            raise _error(tree, f"{name} is used as {CHOICES[name]}")
        if name not in FUNCTIONS:
            known = sorted([*(function.usage for function in FUNCTIONS.values()), *CHOICES.values()])
            nearest = _nearest(name, [*FUNCTIONS, *CHOICES])
            raise _error(tree, f"there is no function {name}{nearest}; the functions are {', '.join(known)}")
        function = FUNCTIONS[name]
        arrays = len(arguments) if function.arrays < 0 else function.arrays
        literals = [_literal_of(argument) for argument in arguments[arrays:]]
        most = len(function.literals)
        fits = len(arguments) >= max(arrays, 1) and most - function.optional <= len(literals) <= most
        if not fits or any(type(a) is not b for a, b in zip(literals, function.literals, strict=False)):
            raise _error(tree, f"{name} is used as {function.usage}; what stands in quotes and numbers are literals")
        if name == "matches":
            try:
                pc.match_substring_regex(pa.array([""]), literals[0])
            except pa.ArrowInvalid as error:
                raise _error(tree, str(error)) from None
        compute = lambda *values: function.compute(*values, *literals)  # noqa: E731
        return _applied(name, compute, *[self._compile(argument) for argument in arguments[:arrays]])


def _applied(name: str, compute: Callable[..., pa.Array], *operands: _Node) -> _Node:
    def node(rows: _Rows) -> pa.Array:
        values = [operand(rows) for operand in operands]
        try:
            return compute(*values)
        except TypeError as error:
            raise TypeError(f"{name}: {error}") from error
        except pa.ArrowNotImplementedError as error:
            found = ", ".join(str(value.type) for value in values)
            raise TypeError(f"{name}: not possible with {found}") from error

    return node


def _where(rows: _Rows, needed: pa.Array, operand: _Node) -> pa.Array:
    """The operand's value where `needed`, null elsewhere: a row that is not asked for cannot fail."""
    if pc.all(needed, min_count=0).as_py():
        return operand(rows)
    values = operand(rows.filter(needed))
    return pc.replace_with_mask(pa.nulls(rows.count, values.type), needed, values)


def _and(left: _Node, right: _Node) -> _Node:
    def node(rows: _Rows) -> pa.Array:
        first = functions.flag(left(rows))
        return pc.and_kleene(first, functions.flag(_where(rows, pc.fill_null(first, True), right)))

    return node


def _or(left: _Node, right: _Node) -> _Node:
    def node(rows: _Rows) -> pa.Array:
        first = functions.flag(left(rows))
        return pc.or_kleene(first, functions.flag(_where(rows, pc.invert(pc.fill_null(first, False)), right)))

    return node


def _choice(condition: _Node, yes: _Node, no: _Node) -> _Node:
    def node(rows: _Rows) -> pa.Array:
        chosen = pc.fill_null(functions.flag(condition(rows)), False)
        both = functions.alike(_where(rows, chosen, yes), _where(rows, pc.invert(chosen), no))
        return pc.if_else(chosen, *both)

    return node


def _coalesced(left: _Node, right: _Node) -> _Node:
    def node(rows: _Rows) -> pa.Array:
        first = left(rows)
        return pc.coalesce(*functions.alike(first, _where(rows, pc.is_null(first), right)))

    return node


def _plain(column: pa.ChunkedArray) -> pa.Array:
    array = column.combine_chunks()
    array = pa.concat_arrays(array.chunks) if isinstance(array, pa.ChunkedArray) else array
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


def _literal_of(tree: ast.expr) -> Any:
    try:
        value = ast.literal_eval(tree)
    except ValueError:
        raise _error(tree, f"expected a literal, found {ast.unparse(tree)}") from None
    return value


def _literals(tree: ast.expr) -> list[Any]:
    if not isinstance(tree, ast.List | ast.Tuple | ast.Set):
        raise _error(tree, "in needs a list of literals, as in [1, 2]; contains(text, 'part') looks into text")
    values = [_literal_of(element) for element in tree.elts]
    kinds = {type(value) for value in values}
    if not (kinds <= {int, float} or len(kinds) == 1) or not kinds <= {bool, int, float, str}:
        raise _error(tree, "the list after in holds numbers or texts, not a mixture; test for null with is None")
    return values


def _error(tree: ast.expr, message: str) -> _Refused:
    return _Refused(message, tree.col_offset)


def _nearest(name: str, known: Iterable[str]) -> str:
    found = difflib.get_close_matches(name, list(known), 1)
    return f" (did you mean {found[0]}?)" if found else ""
