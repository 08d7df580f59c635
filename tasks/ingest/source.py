"""What a source declares, and the two moments of reading: list the units once, then read each of them whole.

A source reads units into blocks of the row contract (`tasks/rows.py`). It knows nothing of Ray, of order or of what was
settled before: `datasource.py` does.
"""

from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal

import pyarrow as pa
from pydantic import Field

from tasks.ingest.versioned import SourceFile
from tasks.ingest.wait_for import WaitFor
from tasks.leaf import Leaf
from tasks.storage import File, Location


class Source(Leaf):
    """Settings that all sources share; a leaf adds `kind`, its own settings, `units` and `read`."""

    path: Annotated[str, Field(min_length=1, description="Directory or file; {partition} and ${ENV_VAR} expand.")]
    anonymous: Annotated[bool, Field(description="Read a public bucket without credentials.")] = False
    allow_empty: Annotated[bool, Field(description="Publish an empty partition instead of failing.")] = False
    on_changed: Annotated[
        Literal["quarantine", "fail"],
        Field(description="What a file costs that changed or vanished since it was listed: its rows, or the run."),
    ] = "quarantine"
    wait_for: Annotated[
        WaitFor | None, Field(description="What has to be there before the inputs are listed; null: nothing.")
    ] = None

    extensions: ClassVar[tuple[str, ...]] = ()

    def location(self, partition: str) -> Location:
        return Location(self.path, partition, self.anonymous)

    def file(self, unit: dict[str, Any], size: int | None = None) -> SourceFile:
        """A unit's file, to be read in the version that was listed. `size`: its bytes, if the unit is all of it."""
        return SourceFile(unit["uri"], unit["version"], size, self.anonymous, self.on_changed)

    def units(self, files: list[File]) -> pa.Table:
        """The manifest's units (schema `reading_order.UNITS`, `unit` counting from 0) of the files found."""
        raise TypeError(f"{type(self).__name__} has no units")

    def common_schema(self, units: pa.Table) -> pa.Schema | None:
        """The columns and types that all units are read as, where the files themselves do not say."""
        return None

    def read(self, units: pa.Table, schema: pa.Schema | None) -> Iterator[pa.Table]:
        """Blocks of the rows of `units`, one unit after another, quarantining what cannot be read."""
        raise TypeError(f"{type(self).__name__} has no read")
