"""The choice of one of a row's texts: the value that most texts have, or the best by an expression."""

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from overnight.tasks.errors import ContractError, RowError
from overnight.tasks.rows.expressions.parser import Expression

ALL = "all"
RULE = re.compile(r"(majority|best)(?:\((.+)\))?", re.DOTALL)


@dataclass(frozen=True)
class Kept:
    """The number of the text that is kept, and the share of the row's texts that have its value (of `majority`)."""

    number: int
    agreement: float | None


@dataclass(frozen=True)
class KeepRule:
    """The rule that chooses a text: `majority` of the field `of` (empty: of the whole text), or `best` by `of`."""

    name: str
    of: str

    def refuse_fields(self, kind: pa.DataType | None) -> None:
        """Raise `ValueError` if `of` names a field that structured output of the type `kind` does not have."""
        fields = _fields(kind)
        missing = [self.of] if self.of and self.of not in fields else []
        if self.name == "best":
            lower_fields = {field.lower() for field in fields}
            required = Expression(self.of).required if fields else [self.of]
            missing = [name for name in required if name.lower() not in lower_fields]
        if missing:
            raise ValueError(
                f"keep: expected a field of output_schema, found {', '.join(missing)}; "
                f"the fields are {', '.join(fields) or 'none'}"
            )
        if self.name == "best":
            try:
                result = self._results([], kind)[0].type
            except (ContractError, RowError) as error:
                raise ValueError(str(error)) from None
            if pa.types.is_nested(result):
                raise ValueError(f"keep: expected an expression whose value is a number or a text, found {result}")

    def choose(self, values: Mapping[int, Any], kind: pa.DataType | None, count: int) -> Kept:
        """Return the text to keep. `values`: number of a text that fits -> its value; `count`: of all texts."""
        if self.name == "best":
            return Kept(self._best(values, kind), None)
        keys = {number: json.dumps(self._part(value), sort_keys=True) for number, value in values.items()}
        [(key, votes)] = Counter(keys.values()).most_common(1)  # of equal ones the first
        return Kept(next(number for number in keys if keys[number] == key), votes / count)

    def _part(self, value: Any) -> Any:
        return (value or {}).get(self.of) if self.of else value

    def _results(self, values: Sequence[Any], kind: pa.DataType | None) -> Any:
        """Return the expression's result for each value, and the errors of rows."""
        fields = [pa.field(name, kind.field(name).type) for name in _fields(kind)] if kind else []
        table = pa.Table.from_pylist([value or {} for value in values], pa.schema(fields))
        return Expression(self.of).evaluate(table, "keep", "infer")

    def _best(self, values: Mapping[int, Any], kind: pa.DataType | None) -> int:
        """Return the first text with the largest result. A text without one is not the best."""
        results, errors = self._results(list(values.values()), kind)
        ranks = [
            (result, -number) for number, result in zip(values, results.to_pylist(), strict=True) if result is not None
        ]
        if not ranks:
            reason = next(iter(errors.values()), "null for each text")
            raise RowError(f"keep: expected a value of {self.of!r} for one of the texts, found {reason}")
        return -max(ranks)[1]


def keep_rule(keep: str) -> KeepRule | None:
    """Return the rule that `keep` writes, or None for all texts. Raise `ValueError` for another form."""
    if keep == ALL:
        return None
    match = RULE.fullmatch(keep)
    if not match or (match[1] == "best" and not match[2]):
        raise ValueError(
            f"keep: expected all, majority, majority(field) or best(expression), found {keep!r}. "
            "An expression is SQL over the fields of structured_output"
        )
    return KeepRule(match[1], (match[2] or "").strip())


def _fields(kind: pa.DataType | None) -> Sequence[str]:
    return [field.name for field in kind] if kind is not None and pa.types.is_struct(kind) else []
