"""Parquet files, written and read by pyarrow."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from overnight.tasks.ingest.sources.parquet import Parquet
from tests.contracts.sources.adapter import NO_WHERE, Adapter, Damage
from tests.contracts.sources.values import ARROW
from tests.tasks.ingest.conftest import overwritten, rewritten

VIEWS = [[["a"], ["b", "c"]], [], *[None] * (len(ARROW) - 2)]


class ParquetFiles(Adapter):
    kind = "parquet"
    leaf = Parquet
    extension = ".parquet"
    values = ARROW.append_column("views in lists", pa.array(VIEWS, pa.list_(pa.list_view(pa.string_view()))))
    not_applicable = {"where": NO_WHERE}
    damages = {
        "cut": Damage(rewritten(lambda content: content[:-3]), "magic bytes not found in footer"),
        "a page": Damage(rewritten(lambda content: overwritten(content, 4, 60)), "row group 0"),
        "its footer": Damage(rewritten(lambda content: overwritten(content, -300, -8)), "whole Parquet file"),
    }

    def write(self, folder: Path, name: str, rows: pa.Table) -> Path:
        path = self.place(folder, name)
        with path.open("wb") as file:
            pq.write_table(rows, file, compression="none")
        return path

    def expected(self, folder: Path) -> list[dict[str, Any]]:
        files = [pq.ParquetFile(path).read() for path in sorted(folder.rglob("*.parquet"))]
        return pa.concat_tables(files, promote_options="default").to_pylist()
