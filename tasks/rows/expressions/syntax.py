"""The syntax of an expression: one expression of DuckDB's SQL over one row.

Aggregates, windows, subqueries, tables and functions whose results vary between calls are refused. DuckDB's own parser
makes the tree that this file checks.
"""

import itertools
from typing import Any

import orjson

from overnight.tasks.errors import did_you_mean
from overnight.tasks.rows.expressions.engine import DEEPEST, database, functions

BEFORE, AFTER = "SELECT (\n", "\n)"
PARTS = {"BETWEEN", "CASE", "CAST", "COLLATE", "COLUMN_REF", "COMPARISON", "CONJUNCTION", "CONSTANT", "FUNCTION"}
PARTS |= {"LAMBDA", "OPERATOR", "TYPE"}
# functions that SQL writes like columns
CLOCKS = {"current_date", "current_time", "current_timestamp", "localtime", "localtimestamp"}
# DuckDB lists these as consistent
CLOCKS |= {"age/1", "current_localtime/0", "current_localtimestamp/0"}
UNSTABLE = "is not the same at every call, and a resumed run repeats values"
HABITS = {  # from Python
    "None": "SQL has null for it, as in x is null",
    "if": "SQL has case when condition then a else b end",
    "if_else": "write case when condition then a else b end",
    "col": 'write the name in double quotes, as in "unit price"',
    **dict.fromkeys(("cast_int", "cast_float", "cast_string"), "write cast(x as bigint), double, varchar or timestamp"),
    "unnest": "a python step makes several rows of one",
}


class _Refused(Exception):
    """An error in an expression over one row; `offset` in bytes."""

    def __init__(self, message: str, location: int = 0) -> None:
        super().__init__(message)
        self.offset = max(location - len(BEFORE), 0)


def names(source: str) -> tuple[list[str], set[str]]:
    """Return the columns that an expression names, and those of them that may be parameters of its lambdas.

    Raise `ValueError` if the expression is refused, for example because it has a subquery.
    """
    parameters: set[str] = set()
    try:
        columns = _columns(_tree(source), parameters)
    except _Refused as error:
        characters = len(source.encode()[: error.offset].decode(errors="ignore"))
        raise ValueError(f"{shown(source)}: at character {characters + 1}: {error}") from None
    for name in columns:
        if name.startswith("__"):
            raise ValueError(
                f"{source!r}: expected a column of your data, found {name}: names with __ at the start are Overnight's"
            )
        if name.lower() in CLOCKS and f'"{name}"' not in source:
            raise ValueError(f"{source!r}: {name} {UNSTABLE}")
    return columns, parameters


def _tree(source: str) -> dict[str, Any]:
    """Return the tree of an expression. Raise `_Refused` unless it is exactly one expression."""
    depths = itertools.accumulate((letter == "(") - (letter == ")") for letter in source)
    if max(depths, default=0) > DEEPEST:  # DuckDB's parser needs gigabytes for thousands
        raise _Refused("nested too deeply")
    result = _statements(source)
    if result["error"]:
        message, location = result["error_message"].partition("\n")[0], int(result.get("position", 0))
        if "expression depth" in message:
            message = "nested too deeply"
        elif location > len(BEFORE) + len(source.encode()):
            message = "it ends too early"
        elif message.startswith("syntax error"):
            word = message.rpartition("near ")[2].strip('"')
            message += f"; {HABITS.get(word, 'a column whose name is a word of SQL takes double quotes')}"
        raise _Refused(message, location)
    nodes = [statement["node"] for statement in result["statements"]]
    trees = nodes[0].get("select_list", [])
    plain_select = _statements("NULL")["statements"][0]["node"]
    if len(trees) != 1 or nodes != [plain_select | {"select_list": trees}]:
        raise _Refused("expected one expression, found more")
    return trees[0]


def _statements(source: str) -> dict[str, Any]:
    query = "SELECT json_serialize_sql(?)"
    [row] = database().cursor().execute(query, [BEFORE + source + AFTER]).fetchall()
    statements: dict[str, Any] = orjson.loads(row[0])
    return statements


def _columns(tree: dict[str, Any], parameters: set[str]) -> list[str]:
    """Return the columns that a tree names; possible parameters of lambdas are added to `parameters`.

    Raise `_Refused` for syntax that has no value for a single row.
    """
    nodes: list[Any] = [tree]
    columns: dict[str, None] = {}
    for node in nodes:  # the list grows in the loop
        if isinstance(node, list):
            nodes += node
        if not isinstance(node, dict):
            continue
        kind, location = node.get("class", "TYPE"), node.get("query_location", 0)
        if kind not in PARTS or node.get("type") == "GROUPING_FUNCTION":
            raise _Refused(f"an expression over one row has no {kind.lower().replace('_', ' ')}", location)
        if kind == "FUNCTION":
            _require_function(node["function_name"].lower(), node["schema"], len(node["arguments"]), location)
        if kind == "COLUMN_REF":
            columns[node["column_names"][0]] = None
        if kind == "LAMBDA":
            parameters.update(_columns(node["lhs"], parameters))
        nodes += node.values()
    return list(columns)


def _require_function(name: str, owner: str, count: int, location: int) -> None:
    """Raise `_Refused` for a function that an expression may not call with this number of arguments."""
    if owner:
        raise _Refused(f"write {name}({owner}) for {owner}.{name}()", location)
    if name == "row" and not count:  # nothing between the brackets around the expression
        raise _Refused("it ends too early", location)
    if name not in functions():
        hint = f"; {HABITS[name]}" if name in HABITS else did_you_mean(name, functions())
        raise _Refused(f"there is no function {name}{hint}", location)
    if f"{name}/{count}" in CLOCKS:
        raise _Refused(f"{name} {UNSTABLE}", location)
    refusals = list(itertools.starmap(_refusal, functions()[name]))
    if all(refusals):
        raise _Refused(f"{name} {refusals[0]}", location)


def _refusal(definition: str | None, parameters: list[str], refusal: str | None) -> str | None:
    """Return why an expression may not call a function; None if it may. A macro has a definition."""
    if definition:
        try:
            if set(_columns(_tree(definition), set())) - set(parameters):
                return refusal or UNSTABLE
        except _Refused as error:
            return f"uses other functions, and {error}"
    return refusal


def shown(source: str) -> str:
    """Return the expression in quotes, for messages; a long one is shortened."""
    return repr(source if len(source) <= 300 else source[:300] + "...")
