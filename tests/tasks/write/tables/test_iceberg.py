"""The catalogue of an Iceberg table, which several processes may make at once."""

from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.exc import OperationalError

from overnight.tasks.storage.location import Location
from overnight.tasks.write.tables.iceberg import CatalogEntry


@pytest.mark.parametrize(("losses", "is_opened"), [(2, True), (3, False)])
def test_a_catalogue_opens_although_other_processes_made_each_of_its_tables_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, losses: int, is_opened: bool
) -> None:
    sql = pytest.importorskip("pyiceberg.catalog.sql")
    create_tables, lost = sql.SqlCatalog.create_tables, []

    def lose(catalog: Any) -> None:
        if len(lost) < losses:
            lost.append(catalog)
            raise OperationalError("CREATE TABLE", None, Exception("the table already exists"))
        create_tables(catalog)

    monkeypatch.setattr(sql.SqlCatalog, "create_tables", lose)
    entry = CatalogEntry(f"sqlite:///{tmp_path}/catalog.db", "main", "days.rows", Location(str(tmp_path / "out")))
    if is_opened:
        assert entry.catalog().list_namespaces() == []
    else:
        with pytest.raises(OperationalError):
            entry.catalog()
