"""The receipt of a publish for Python: its facts as attributes, and methods that read the published rows."""

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from overnight.flows.job.model import Job
from overnight.flows.ledger import published_rows
from overnight.flows.ledger.chosen_rows import choose


class Receipt(Mapping[str, Any]):
    """The receipt of a published partition.

    Each key of `receipt.json` is an attribute and an item: `receipt.rows_out` and `receipt["rows_out"]`. Nested values
    are dictionaries: `receipt.stages["infer"]["seconds"]`.
    """

    def __init__(self, receipt: Mapping[str, Any], job: Job) -> None:
        self._facts, self._job = dict(receipt), job

    def __getitem__(self, key: str) -> Any:
        return self._facts[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._facts)

    def __len__(self) -> int:
        return len(self._facts)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in self._facts:
            raise AttributeError(f"expected one of {', '.join(self.__dict__.get('_facts', {}))}, found {name}")
        return self._facts[name]

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self._facts})

    def __repr__(self) -> str:
        counts = ", ".join(f"{name}={self[name]:,}" for name in ("rows_in", "rows_out", "rows_quarantined"))
        return f"Receipt({self['job']}/{self['partition']}, {self['status']}, {counts})"

    def _repr_html_(self) -> str:
        from overnight.api.html import receipt_as_html

        return receipt_as_html(self)

    @property
    def path(self) -> str:
        """Return the path or URI of `receipt.json`. A later publish of the partition replaces that file."""
        return str(published_rows.records_of_receipt(self._job, self) / "receipt.json")

    def table(self, columns: list[str] | None = None) -> pa.Table:
        """Return the published rows as an Arrow table, in memory.

        Rows keep their types; lists and structs in CSV are JSON texts. A database returns the rows that it has now.
        The sink `images` keeps its rows in Parquet files, which have the paths of the images. The column of the
        partition is left out, except in files of Iceberg.

        Args:
            columns: The columns to read; all by default.

        Raises:
            FileNotFoundError: A later publish has replaced the files.
        """
        return published_rows.table_of(self._job, self, columns)

    def head(self, rows: int = 5) -> pa.Table:
        """Return the first published rows as an Arrow table, or all if there are fewer."""
        return choose(published_rows.batches(self._job, self), rows).table

    def dataset(self) -> Any:
        """Return the published rows as a `ray.data.Dataset`.

        Ray reads Parquet files when and where the dataset is consumed. Other rows are read here first, with the types
        that `table` gives them. Raise `FileNotFoundError` if a later publish has replaced the files.
        """
        import ray.data

        files = published_rows.files_of(self._job, self)
        if files and all(file.name.endswith(".parquet") for file in files):
            filesystem, _ = files[0].open_filesystem()
            paths = [file.open_filesystem()[1] for file in files]
            return ray.data.read_parquet(paths, filesystem=filesystem, partitioning=None)
        return ray.data.from_arrow(self.table())

    def quarantine(self) -> pa.Table:
        """Return the rows that failed: `row_id`, `uri`, `stage`, `error_type` and `error_message`, all strings."""
        return published_rows.quarantine_of(self._job, self)
