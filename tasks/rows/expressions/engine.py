"""DuckDB in this process: one database in memory with fixed settings, without access to files or the network."""

import atexit
import functools
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import duckdb

DEEPEST = 300  # the most terms inside each other; a sum of 300 columns is nested as deeply
SETTINGS: dict[str, str | bool | int | float | list[str]] = {
    "threads": 1,
    "async_threads": 0,  # a block is small, and Ray counts one CPU
    "ieee_floating_point_ops": False,  # a value without a result is an error, not NaN
    "enable_external_access": False,
    "autoload_known_extensions": False,
    "python_enable_replacements": False,
    "temp_directory": "",
    "max_expression_depth": DEEPEST,
}
FUNCTIONS = """
    SELECT lower(function_name), macro_definition, parameters, CASE
        WHEN function_type IN ('aggregate', 'window') THEN 'is computed over several rows, and an expression has one'
        WHEN function_type NOT IN ('scalar', 'macro') THEN 'makes a table, and an expression makes one value a row'
        WHEN stability <> 'CONSISTENT' THEN 'is not the same at every call, and a resumed run repeats values'
    END FROM duckdb_functions()
    WHERE NOT starts_with(function_name, 'pg_') AND NOT starts_with(function_name, '__internal')
"""


@functools.cache
def database() -> "duckdb.DuckDBPyConnection":
    """Return the process's connection to DuckDB. Threads share it, so each query must take a cursor of its own."""
    # Its allocator keeps no memory that is free: the bound of the next rows would count that, too.
    # https://jemalloc.net/jemalloc.3.html#tuning
    os.environ.setdefault("DUCKDB_JE_MALLOC_CONF", "retain:false")
    import duckdb

    connection = duckdb.connect(":memory:", config=SETTINGS)
    connection.execute("SET GLOBAL TimeZone = 'UTC'; SET lock_configuration = true")
    return connection


# a forked process makes its own: DuckDB's does not survive a fork
os.register_at_fork(before=database.cache_clear)
# otherwise, if threads outlive it, DuckDB's library writes about leaks to the terminal
atexit.register(database.cache_clear)


@functools.cache
def functions() -> dict[str, list[tuple[str | None, list[str], str | None]]]:
    """Return DuckDB's functions: name in lower case -> definition, parameters and refusal of each signature.

    The definition is None unless it is a macro. The refusal is None if an expression may call the function.
    """
    signatures: dict[str, list[tuple[str | None, list[str], str | None]]] = {}
    for name, *signature in database().cursor().execute(FUNCTIONS).fetchall():
        signatures.setdefault(name, []).append(tuple(signature))
    return signatures
