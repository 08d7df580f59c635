"""The common part of adapters of sources whose rows are files."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa

from overnight.tasks.ingest.sources.whole_files import WholeFiles
from tests.contracts.sources.adapter import NO_WHERE, ROWS, Adapter, Damage

HOLE = Damage(lambda path: os.truncate(path, 5 * 2**30), "expected a file of at most max_file_bytes", range(1, ROWS))


class WholeFilesAdapter(Adapter):
    """Files with `contents`, each a row. Python itself writes and reads them."""

    rows_are_files = True
    leaf: ClassVar[type[WholeFiles]]
    extension: ClassVar[str]
    contents: ClassVar[Sequence[bytes]]
    damages = {"too large": HOLE}
    not_applicable = {
        "new column": "a file is one value: it has no columns",
        "columns": "a file is one value: it has no columns",
        "where": NO_WHERE,
    }

    def __init_subclass__(cls) -> None:
        cls.values = pa.table({cls.leaf.column: pa.array(cls.contents, pa.binary())})

    def rows(self, count: int = ROWS, first: int = 0) -> pa.Table:
        contents = [b"row %d" % number for number in range(first, first + count)]
        return pa.table({self.leaf.column: pa.array(contents, pa.binary())})

    def write(self, folder: Path, name: str, rows: pa.Table) -> Path:
        contents = rows[self.leaf.column].to_pylist()
        names = [name] if len(contents) == 1 else [f"{name}-{number}" for number in range(len(contents))]
        paths = [folder / f"{name}{self.extension}" for name in names]
        for path, content in zip(paths, contents, strict=True):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        return paths[0] if paths else folder

    def row_ids(self, path: Path, folder: Path, count: int = ROWS) -> list[str]:
        name = path.relative_to(folder).as_posix()
        stem = name.removesuffix(f"-0{self.extension}")
        return [name] if count == 1 else [f"{stem}-{number}{self.extension}" for number in range(count)]

    def value(self, path: Path) -> object:
        """Return the value of a file's row."""
        return path.read_bytes()

    def expected(self, folder: Path) -> list[dict[str, Any]]:
        return [{self.leaf.column: self.value(path)} for path in folder.rglob(f"*{self.extension}")]
