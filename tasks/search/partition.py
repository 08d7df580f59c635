"""The published rows of a partition, for search. The sink reads them; the index of a Lance table is Lance's own."""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa
from pyarrow import types

from overnight.tasks.config.extras import require_extra
from overnight.tasks.errors import ContractError
from overnight.tasks.storage.location import Location
from overnight.tasks.storage.object_store import object_store_uri, storage_options


@dataclass(frozen=True)
class LanceTable:
    """The Lance table at `place`. `partition_column` is None for the partition `all`."""

    place: Location
    partition_column: str | None

    @cached_property
    def dataset(self) -> Any:
        """Return the table's newest version at the first call, as a `lance.LanceDataset`."""
        lance: Any = require_extra("lance", "search in a Lance table", "plan")
        os.environ.setdefault("LANCE_INCLUDE_VECTOR_CENTROIDS", "false")  # otherwise it warns of a future change
        return lance.dataset(object_store_uri(self.place), storage_options=storage_options())


@dataclass(frozen=True, eq=False)
class PublishedPartition:
    """The published rows of a partition. `read` is `Sink.read` of its receipt: it takes the columns, None for all.

    `table` is the Lance table that contains the rows, if they are in one.
    """

    partition: str
    read: Callable[[list[str] | None], Iterator[pa.Table]]
    table: LanceTable | None = None

    def schema(self) -> pa.Schema:
        """Return the columns of the rows; none if there are no rows."""
        return next((table.schema for table in self.read(None)), pa.schema([]))


def require(schema: pa.Schema, columns: Sequence[str], place: str) -> None:
    """Raise `ContractError`, which names `place`, if the schema lacks one of the columns."""
    for name in columns:
        if name not in schema.names:
            raise ContractError(f"{place}: expected a column {name}, found {', '.join(schema.names)}.")


def plain_columns(schema: pa.Schema) -> list[str]:
    """Return the names of the columns of texts, numbers, truth values and times."""
    is_plain = (
        types.is_string,
        types.is_large_string,
        types.is_integer,
        types.is_floating,
        types.is_decimal,
        types.is_boolean,
        types.is_temporal,
    )
    return [field.name for field in schema if any(is_kind(field.type) for is_kind in is_plain)]
