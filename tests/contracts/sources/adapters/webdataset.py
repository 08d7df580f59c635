"""Shards of WebDataset, written and read by Python's module tarfile."""

import io
import tarfile
from pathlib import Path
from typing import Any

import pyarrow as pa

from overnight.tasks.ingest.sources.webdataset import WebDataset
from tests.contracts.sources.adapter import NO_WHERE, Adapter, Damage
from tests.tasks.ingest.conftest import rewritten

FORMS = {"cls": int, "txt": bytes.decode, "json": bytes.decode}  # how the convention reads a file; others are bytes


class Shards(Adapter):
    kind = "webdataset"
    leaf = WebDataset
    extension = ".tar"
    values = pa.table(
        {
            "cls": [0, -(2**63), 2**63 - 1, None],
            "txt": ["", "é\n🦉", "02116", None],
            "json": ['{"a": 18446744073709551617}', "[]", "NaN", None],
            "jpg": [b"\xff\xd8", b"", None, b"x"],
            "seg.png": [None, None, b"mask", b""],
        }
    )
    damages = {
        "cut": Damage(rewritten(lambda content: content[: 4 * 1024 + 100]), "tar archive", range(1)),
    }
    not_applicable = {
        "columns": "the setting names extensions by column, which tests of the kind itself show",
        "where": NO_WHERE,
    }

    def rows(self, count: int = 10, first: int = 0) -> pa.Table:
        rows = super().rows(count, first)
        return rows.rename_columns(["cls", "txt"])

    def write(self, folder: Path, name: str, rows: pa.Table) -> Path:
        path = self.place(folder, name)
        with tarfile.open(path, "w") as archive:
            for number, row in enumerate(rows.to_pylist()):
                for extension, value in row.items():
                    if value is not None:
                        content = value if isinstance(value, bytes) else str(value).encode()
                        member = tarfile.TarInfo(f"{path.name}/{number:04d}.{extension}")
                        member.size = len(content)
                        archive.addfile(member, io.BytesIO(content))
        return path

    def expected(self, folder: Path) -> list[dict[str, Any]]:
        samples: dict[tuple[Path, str], dict[str, Any]] = {}
        for path in sorted(folder.rglob("*.tar")):
            with tarfile.open(path) as archive:
                for member in archive:
                    key, _, extension = member.name.rpartition("/")[2].partition(".")
                    file = archive.extractfile(member)
                    assert file is not None
                    sample = samples.setdefault((path, key), {"key": f"{path.name}/{key}"})
                    sample[extension] = FORMS.get(extension, bytes)(file.read())
        names = {name for sample in samples.values() for name in sample}
        return [dict.fromkeys(names) | sample for sample in samples.values()]
