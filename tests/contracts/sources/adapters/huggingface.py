"""Datasets that the library `datasets` saves and loads."""

from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa

from overnight.tasks.ingest.sources.huggingface import HuggingFace
from tests.contracts.sources.adapter import NO_WHERE, Adapter, Damage
from tests.contracts.sources.values import ARROW
from tests.tasks.ingest.conftest import overwritten, rewritten

datasets.disable_progress_bars()


def holds(column: pa.ChunkedArray) -> bool:
    """True if the library has a feature for the column's type."""
    try:
        datasets.Dataset(pa.table({"x": column}))
    except (ValueError, NotImplementedError, TypeError, pa.ArrowException):
        return False
    return True


class Datasets(Adapter):
    kind = "huggingface"
    leaf = HuggingFace
    values = ARROW.select([name for name in ARROW.column_names if holds(ARROW[name])])
    damages = {
        "cut": Damage(rewritten(lambda content: content[:-99]), "expected"),
        "a header": Damage(rewritten(lambda content: overwritten(content, 4, 60)), "expected"),
    }
    not_applicable = {"where": NO_WHERE}

    def write(self, folder: Path, name: str, rows: pa.Table) -> Path:
        datasets.Dataset(rows).save_to_disk(folder / name)
        return folder / name / "data-00000-of-00001.arrow"

    def expected(self, folder: Path) -> list[dict[str, Any]]:
        places = sorted(path.parent for path in folder.rglob("*.arrow"))
        return [row for place in places for row in datasets.load_from_disk(place).with_format("arrow")[:].to_pylist()]
