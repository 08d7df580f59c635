"""Rows of a database: upserted by row id in one transaction, by one publisher at a time, and no secret told."""

import threading
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from pydantic import ValidationError

from overnight.tasks.errors import CheckFailed, ContractError, JobError, ServiceUnavailable
from overnight.tasks.state import lease
from overnight.tasks.write.sinks.sql import SqlSink
from overnight.tasks.write.tables import sql
from overnight.tasks.write.tables.sql import engine
from tests.contracts.sinks.publications import holding, numbered, publish_parts, records_of, stage
from tests.postgres import PASSWORD


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/out.db" if request.param == "sqlite" else request.getfixturevalue("database")


@pytest.fixture
def database(postgres: str) -> str:
    name = f"test_{uuid.uuid4().hex[:8]}"
    ask(postgres + "postgres", f"CREATE DATABASE {name}")
    return postgres + name


def ask(url: str, statement: str) -> list[tuple[Any, ...]]:
    with engine(url).connect() as connection:
        if connection.dialect.name == "postgresql":
            connection.execution_options(isolation_level="AUTOCOMMIT")
        found = connection.execute(sa.text(statement))
        rows = [tuple(row) for row in found] if found.returns_rows else []
        connection.commit()
        return rows


def sink_at(url: str) -> SqlSink:
    return SqlSink(url=url, table="results")


def test_rows_are_inserted_updated_and_deleted_and_other_columns_and_partitions_stay(url: str, tmp_path: Path) -> None:
    sink = sink_at(url)
    publish_parts(numbered(tmp_path, 1, "2026-01-01"), sink, {"x": [7]})
    publish_parts(numbered(tmp_path, 2), sink, {"x": [1, 2]}, {"x": [3]})
    ask(url, "ALTER TABLE results ADD COLUMN reviewed TEXT")
    ask(url, "UPDATE results SET reviewed = 'by me' WHERE x < 3")
    publish_parts(numbered(tmp_path, 3), sink, {"x": [1, 5]})
    assert ask(url, "SELECT CAST(date AS TEXT), row_id, x, reviewed FROM results ORDER BY 1, 2") == [
        ("2026-01-01", "a#0", 7, None),
        ("2026-01-02", "a#0", 1, "by me"),
        ("2026-01-02", "a#1", 5, "by me"),
    ]
    assert ask(url, "SELECT partition_name, generation, rows_published FROM overnight_publishes ORDER BY 1") == [
        ("2026-01-01", "g001", 1),
        ("2026-01-02", "g003", 2),
    ]
    with engine(url).connect() as connection:
        assert sorted(sa.inspect(connection).get_table_names()) == ["overnight_publishes", "results"]


def test_a_type_that_does_not_fit_is_refused_before_anything_changes(database: str, tmp_path: Path) -> None:
    sink, again = sink_at(database), numbered(tmp_path, 2)
    publish_parts(numbered(tmp_path, 1, "2026-01-01"), sink, {"x": [1]})
    with pytest.raises(ContractError, match='"x" is of type bigint'):
        publish_parts(again, sink, {"x": ["text"], "newer": [1]})
    columns = "SELECT column_name FROM information_schema.columns WHERE table_name = 'results' ORDER BY 1"
    assert ask(database, columns) == [("date",), ("row_id",), ("x",)]
    assert ask(database, "SELECT x FROM results") == [(1,)]
    assert "_merged-t-000002" not in again.parts.names()
    assert ask(database, "SELECT count(*) FROM pg_tables WHERE tablename LIKE '_overnight_%'") == [(0,)]


def test_rows_and_tables_of_somebody_else_are_refused(url: str, tmp_path: Path) -> None:
    sink, run, undated = sink_at(url), numbered(tmp_path, 1), numbered(tmp_path, 1, "all")
    assert sink.foreign(run, set()) == []
    ask(url, "CREATE TABLE results (row_id TEXT PRIMARY KEY, x BIGINT)")
    with pytest.raises(CheckFailed, match="column date, found row_id, x"):
        sink.foreign(run, set())
    assert sink.foreign(undated, set()) == []
    ask(url, "INSERT INTO results VALUES ('theirs', 1)")
    with pytest.raises(CheckFailed, match="rows of all"):
        sink.foreign(undated, set())
    ask(url, "DROP TABLE results")
    publish_parts(run, sink, {"x": [1]})
    assert sink.foreign(run, set()) == []
    with pytest.raises(CheckFailed, match="'job', not by 'other'"):
        sink.foreign(replace(run, job="other"), set())


def test_a_table_without_a_unique_key_is_refused_before_anything_changes(url: str, tmp_path: Path) -> None:
    ask(url, "CREATE TABLE results (row_id TEXT, x BIGINT)")
    with pytest.raises((ContractError, ServiceUnavailable), match="ON CONFLICT"):
        publish_parts(numbered(tmp_path, 1, "all"), sink_at(url), {"x": [1]})
    assert ask(url, "SELECT * FROM results") == []


def test_a_publish_that_froze_in_its_transaction_is_waited_for_and_loses_its_lock(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server ends the transaction; nothing of it is there, and the next run goes on."""
    patience, target = sql.SECONDS_TO_WAIT, sql.Target(database, "results", numbered(tmp_path, 1))
    monkeypatch.setattr(sql, "SECONDS_TO_WAIT", 1)
    with pytest.raises(sa.exc.DBAPIError), sql.transaction(target) as frozen:  # noqa: PT012
        monkeypatch.setattr(sql, "SECONDS_TO_WAIT", patience)  # for the next run, which may pause on a busy machine
        sql.last_publish(frozen, target)
        publish_parts(numbered(tmp_path, 2), sink_at(database), {"x": [1]})
        frozen.execute(sa.text("SELECT 1"))
    assert ask(database, "SELECT x FROM results") == [(1,)]


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("postgresql+psycopg://me:secret@host/db", r"password; write \$\{ENV_VAR\}"),
        ("postgresql://host/db?user=me&password=secret", "URL contains password"),
        ("sqlite:///results.db", "absolute path"),
        ("results", "SQLAlchemy URL"),
    ],
)
def test_a_url_that_holds_a_secret_or_depends_on_the_directory_is_refused(url: str, said: str) -> None:
    with pytest.raises(ValidationError, match=said) as raised:
        SqlSink(url=url, table="results")
    assert "secret" not in str(raised.value.errors(include_input=False))


def test_what_is_told_of_a_database_that_does_not_answer_holds_no_secret(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPASSWORD", PASSWORD + "wrong")
    with pytest.raises(ServiceUnavailable, match="authentication failed") as refused:
        publish_parts(numbered(tmp_path, 1), sink_at(database), {"x": [1]})
    assert PASSWORD not in str(refused.value)
    assert refused.value.__cause__ is None
    with pytest.raises(JobError, match=r"\$\{PGPASSWORD\}.* driver") as unknown:
        sink_at("nothing://me:${PGPASSWORD}@host/db").foreign(numbered(tmp_path, 1), set())
    assert PASSWORD not in str(unknown.value)


def test_who_takes_over_in_the_middle_of_a_commit_waits_for_its_end_and_sees_it(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink, run = sink_at(database), numbered(tmp_path, 2)
    publish_parts(numbered(tmp_path, 1), sink, {"x": [1]})
    stage(run, {"x": [2]})
    looked, go_on, seen = threading.Event(), threading.Event(), []

    def pause(*_: Any) -> None:
        looked.set()
        go_on.wait(30)

    with holding(run) as held:
        ready = sink.prepare(held, *records_of(held))
        monkeypatch.setattr(lease, "check", pause)
        publishing = threading.Thread(target=sink.commit, args=(held, ready, []))
        publishing.start()
        assert looked.wait(30)
        repairing = threading.Thread(target=lambda: seen.append(sink.is_committed(run, [], [])))
        repairing.start()
        repairing.join(1)
        assert seen == []
        go_on.set()
        publishing.join()
        repairing.join()
    assert seen == [True]
