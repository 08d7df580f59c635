"""Lance tables, written and read by pylance."""

from pathlib import Path
from typing import Any

import lance
import pyarrow as pa

from overnight.tasks.ingest.sources.lance import Lance
from tests.contracts.sources.adapter import NO_WHERE, ROWS, Adapter, Damage
from tests.contracts.sources.adapters.delta import NO_LISTING
from tests.contracts.sources.values import without
from tests.tasks.ingest.conftest import RESIZED


class LanceTables(Adapter):
    kind = "lance"
    values = without("list view")
    not_applicable = {
        "hidden": NO_LISTING,
        "names": NO_LISTING,
        "folders": NO_LISTING,
        "where": NO_WHERE,
    }
    damages = {name: Damage(*damage) for name, damage in RESIZED.items()}

    def write(self, folder: Path, name: str, rows: pa.Table) -> Path:
        data = folder / "table.lance" / "data"
        before, is_new = set(data.glob("*")), not data.parent.exists()
        if not is_new:
            table = lance.dataset(data.parent)
            if more := [field for field in rows.schema if field.name not in table.schema.names]:
                table.add_columns(pa.schema(more))
        rows = pa.Table.from_pylist(rows.to_pylist(), rows.schema)  # pylance 14 panics for slices of some types
        lance.write_dataset(rows, data.parent, mode="create" if is_new else "append", data_storage_version="2.2")
        return next(iter(set(data.glob("*")) - before), data)

    def source(self, folder: Path, **settings: Any) -> Lance:
        return Lance(path=str(folder / "table.lance"), **settings)

    def expected(self, folder: Path) -> list[dict[str, Any]]:
        return lance.dataset(folder / "table.lance").to_table().to_pylist()

    def row_ids(self, path: Path, folder: Path, count: int = ROWS) -> list[str]:
        return [f"{path.name}#{number}" for number in range(count)]
