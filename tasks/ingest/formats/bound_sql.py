"""The user's SQL with bound values, as a statement of SQLAlchemy.

SQLAlchemy's own text() would parse colons in the query as parameters, and backslashes before them as escapes: a quoted
text would change. So the pieces between the values are literal here.
"""

import re
from typing import Any

from sqlalchemy import ClauseElement, Executable, bindparam, literal_column
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.types import NullType


class BoundSql(Executable, ClauseElement):
    """A statement of SQLAlchemy with the text `query`, in which a key of `values` in braces is a bound parameter.

    For example, `{partition}` becomes a parameter with the value `values["partition"]`, wherever it occurs.
    """

    inherit_cache = False

    def __init__(self, query: str, values: dict[str, Any]) -> None:
        # The values have no type here, because the driver would send it: PostgreSQL compares no date with a text.
        marks = {name: bindparam(name, value, NullType()) for name, value in values.items()}
        pieces = re.split("{(" + "|".join(map(re.escape, values)) + ")}", query)
        self.pieces = [marks[piece] if number % 2 else literal_column(piece) for number, piece in enumerate(pieces)]


@compiles(BoundSql)
def _compiled(statement: BoundSql, compiler: Any, **options: Any) -> str:
    return "".join(compiler.process(piece, **options) for piece in statement.pieces)
