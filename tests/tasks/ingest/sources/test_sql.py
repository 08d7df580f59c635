"""Rows of queries, on SQLite and on a real PostgreSQL."""

import contextlib
import datetime
import decimal
import itertools
import json
import re
import sqlite3
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pydantic import ValidationError

from overnight.tasks.errors import InputError, ServiceUnavailable
from overnight.tasks.ingest.formats.sql_query import connection, rows
from overnight.tasks.ingest.listing.list_files import list_inputs
from overnight.tasks.ingest.sources import sql
from overnight.tasks.ingest.sources.sql import Sql
from overnight.tasks.rows import blocks
from overnight.tasks.state.manifest import digest
from overnight.tasks.state.read_plan import PENDING
from tests.tasks.ingest.conftest import Read, read_all

DAY, NEXT = "2026-01-01", "2026-01-02"
TABLE = "CREATE TABLE reviews (id integer, day date, text varchar(99), changed integer)"


@pytest.fixture(scope="session")
def server(postgres: str) -> str:
    """The URL of a database of these tests' own; the environment says where it is, and the password."""
    import psycopg

    with psycopg.connect("dbname=postgres", autocommit=True) as connection:
        connection.execute("CREATE DATABASE ingest")
    return f"{postgres}ingest"


@pytest.fixture(params=["sqlite3", "psycopg"])
def database(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A connection to an empty database, and as `settings` what a job file says of it."""
    if request.param == "sqlite3":
        monkeypatch.setenv("DATABASE", str(tmp_path / "data.db"))
        connection: Any = sqlite3.connect(tmp_path / "data.db", isolation_level=None)
        yield connection, {"url": "sqlite:///${DATABASE}"}
        connection.close()
        return
    import psycopg

    url = request.getfixturevalue("server")
    with psycopg.connect("dbname=ingest", autocommit=True) as connection:
        yield connection, {"url": url}
        connection.execute("DROP SCHEMA public CASCADE")
        connection.execute("CREATE SCHEMA public")


@pytest.fixture
def reviews(database: Any) -> tuple[Any, Callable[..., Sql]]:
    """A hundred reviews, sixty of the first of January; their ids have gaps. And sources that read a day of them."""
    connection, settings = database
    connection.execute(TABLE)
    for n in range(100):
        day = DAY if n < 60 else NEXT
        connection.execute(f"INSERT INTO reviews VALUES ({n * 3}, '{day}', 'it''s 100% of {n}', 0)")

    def source(query: str = "SELECT * FROM reviews WHERE day = {partition}", **options: Any) -> Sql:
        return Sql(**{**settings, "query": query, "key": "id", "rows_per_unit": 7, **options})

    return connection, source


def listed(source: Sql, partition: str = DAY) -> pa.Table:
    return source.units(list_inputs(source, partition))


def read(source: Sql, partition: str = DAY) -> Read:
    return read_all(source, listed(source, partition))


def test_a_day_s_rows_are_named_by_their_key(reviews: Any) -> None:
    _, source = reviews
    assert source().is_dated
    found = read(source())
    assert {name: (row["id"], row["text"]) for name, row in found.good.items()} == {
        str(n * 3): (n * 3, f"it's 100% of {n}") for n in range(60)
    }
    assert [row["uri"] for row in found.good.values()] == [None] * 60
    assert len(read(source(), NEXT).good) == 40
    assert len(listed(source())) == 9
    with pytest.raises(InputError, match="found none"):
        listed(source(), "2026-01-03")
    by_text = read(source("SELECT 'ü/' || id AS id, text FROM reviews WHERE day = {partition}"))
    assert set(by_text.good) == {f"ü/{n * 3}" for n in range(60)}


def test_a_partition_is_a_value_and_never_part_of_the_query(reviews: Any) -> None:
    connection, source = reviews
    query = "SELECT * FROM reviews WHERE text <> {partition} AND text LIKE 'it%' AND text <> '%s ? :a'"
    assert len(read(source(query), "x' OR 1=1; DROP TABLE reviews; --").good) == 100
    assert connection.execute("SELECT count(*) FROM reviews").fetchone()[0] == 100


def test_rows_are_held_by_their_bytes_and_each_key_is_settled_once(
    reviews: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection, source = reviews
    wide = source("SELECT id, text || repeated AS text FROM reviews, more WHERE day = {partition}", rows_per_unit=60)
    connection.execute("CREATE TABLE more (repeated text)")
    connection.execute(f"INSERT INTO more VALUES ('{'x' * 1000}')")
    units = listed(wide)
    monkeypatch.setattr(sql, "LARGEST_BLOCK_BYTES", 5_000)
    connection.execute(f"INSERT INTO reviews VALUES (4, '{DAY}', 'since the listing', 0), (30, '{DAY}', 'twice', 0)")
    connection.execute("DELETE FROM reviews WHERE id IN (0, 33, 177)")
    pending = units.append_column("settled", pa.nulls(1, pa.list_(pa.int64()))).cast(PENDING)
    live = [block for block in wide.read(pending, None) if block["__state"][0].as_py() == blocks.LIVE]
    assert len(live) == 15
    assert max(block.nbytes for block in live) < 7_000  # with the identity of each row
    found = read_all(wide, units)
    assert set(found.good) == {str(n * 3) for n in range(1, 59)} - {"30", "33"}
    assert {row: reason.partition(",")[0] for row, reason in found.bad.items()} == {
        "0": "expected the row with id 0",
        "33": "expected the row with id 33",
        "177": "expected the row with id 177",
        "30": "expected one row with id 30",
    }


def test_a_key_that_a_damaged_database_lists_again_is_settled_at_each_place(reviews: Any) -> None:
    _, source = reviews
    files = list_inputs(source(rows_per_unit=60), DAY)
    about = json.loads(files[0].version)
    about["keys"] = [3, 6, 3, 9]
    units = source().units([replace(files[0], version=json.dumps(about))])
    pending = units.append_column("settled", pa.nulls(1, pa.list_(pa.int64()))).cast(PENDING)
    found = {row["__row"]: row for block in source().read(pending, None) for row in block.to_pylist()}
    states = [found[number]["__state"] for number in range(4)]
    assert states == [blocks.QUARANTINED, blocks.LIVE, blocks.QUARANTINED, blocks.LIVE]


def test_inputs_are_others_when_a_key_or_a_version_is(reviews: Any) -> None:
    connection, source = reviews
    by_key, by_version = source(), source(version_column="changed")
    before = [digest(list_inputs(one, DAY)) for one in (by_key, by_version)]
    connection.execute("UPDATE reviews SET text = 'new', changed = 1 WHERE id = 6")
    assert digest(list_inputs(by_key, DAY)) == before[0]
    assert digest(list_inputs(by_version, DAY)) != before[1]
    connection.execute("DELETE FROM reviews WHERE id = 9")
    assert digest(list_inputs(by_key, DAY)) != before[0]


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("SELECT 1 AS id, text FROM reviews", "expected another id in each row, found 1 twice"),
        ("SELECT NULL AS id, text FROM reviews", "expected whole numbers or texts in id, found None"),
        ("SELECT id + 0.5 AS id FROM reviews", "expected whole numbers or texts in id, found"),
        ("SELECT text FROM reviews", "source.query: "),
        ("SELEKT id", "source.query: .*(SELEKT|syntax)"),
    ],
)
def test_what_cannot_be_read_row_by_row_is_refused(reviews: Any, query: str, told: str) -> None:
    _, source = reviews
    with pytest.raises(InputError, match=told):
        listed(source(query))
    with pytest.raises(InputError, match="no column price; the columns are id, text"):
        read(source("SELECT id, text FROM reviews", types={"price": "double"}))


@pytest.fixture
def values(tmp_path: Path) -> Iterator[Any]:
    """A table of fifty rows whose column n is of no type, which only SQLite has, and its settings."""
    with contextlib.closing(sqlite3.connect(tmp_path / "t.db", isolation_level=None)) as connection:
        connection.execute("CREATE TABLE t (id integer, n)")
        connection.executemany("INSERT INTO t VALUES (?, ?)", [(n, n) for n in range(50)])
        url = f"sqlite:///{tmp_path}/t.db"
        yield connection, {"url": url, "query": "SELECT * FROM t", "key": "id", "rows_per_unit": 10}


MISFITS = [
    ("'many'", "", "expected int64, found 'many'"),
    ("2.5", "", "expected int64, found 2.5"),
    ("1e400", "", "expected int64, found inf"),
    ("x'ff'", "", r"expected int64, found b'\xff'"),
    ("1000", "int8", "expected int8, found 1000"),
    ("'maybe'", "bool", "expected bool, found 'maybe'"),
    ("'1,5'", "double", "expected double, found '1,5'"),
    ("'2026-13-01'", "date32", "expected date32[day], found '2026-13-01'"),
    ("'yesterday'", "timestamp[us]", "expected timestamp[us], found 'yesterday'"),
    ("5", "binary", "expected binary, found 5"),
    ("x'6772fc6e'", "string", r"expected string, found b'gr\xfcn'"),
    ("CAST(x'6772fc6e' AS TEXT)", "string", r"expected string, found b'gr\xfcn'"),
]


@pytest.mark.parametrize(("value", "kind", "reason"), MISFITS, ids=[f"{kind} {value}" for value, kind, _ in MISFITS])
def test_a_value_that_its_column_does_not_hold_costs_its_row(values: Any, value: str, kind: str, reason: str) -> None:
    connection, settings = values
    if kind:
        connection.execute("UPDATE t SET n = NULL")
    connection.execute(f"INSERT INTO t VALUES (50, {value}), (51, NULL)")
    found = read(Sql(**settings, types={"n": kind} if kind else {}), "all")
    assert found.bad == {"50": f"column n: {reason}; see source.types"}
    assert found.column("n") == ([None] * 50 if kind else list(range(50))) + [None]


def test_a_column_of_several_types_may_be_read_as_one(values: Any) -> None:
    connection, settings = values
    connection.execute("INSERT INTO t VALUES (50, 'many'), (51, 2.5)")
    found = read(Sql(**settings, types={"n": "string"}), "all")
    assert [found.good[name]["n"] for name in ("49", "50", "51")] == ["49", "many", "2.5"]
    query = "SELECT id, '2026-01-02' AS day, n FROM t"
    found = read(Sql(**{**settings, "query": query}, types={"day": "date32", "n": "double"}), "all")
    assert (found.good["51"]["day"], found.good["51"]["n"], list(found.bad)) == (datetime.date(2026, 1, 2), 2.5, ["50"])


GONE = "expected the row with id 3, as listed, found none any more"
CHANGED = "expected the row with id 3 as listed, found another changed"
LOSSES = {
    "DELETE FROM reviews WHERE id = 3": GONE,
    "UPDATE reviews SET id = NULL WHERE id = 3": GONE,
    f"UPDATE reviews SET day = '{NEXT}' WHERE id = 3": GONE,
    "UPDATE reviews SET changed = 1 WHERE id = 3": CHANGED,
    "UPDATE reviews SET changed = NULL WHERE id = 3": CHANGED,
    f"INSERT INTO reviews VALUES (3, '{DAY}', 'x', 0)": "expected one row with id 3, as listed, found several",
}


@pytest.mark.parametrize(("statement", "reason"), LOSSES.items(), ids=LOSSES)
def test_a_row_that_is_not_as_listed_is_lost_alone_with_the_reason(reviews: Any, statement: str, reason: str) -> None:
    connection, source = reviews
    units = listed(source(version_column="changed"))
    connection.execute(statement)
    found = read_all(source(version_column="changed"), units)
    assert list(found.bad) == ["3"]
    assert found.bad["3"].startswith(reason)
    assert found.column("text") == [f"it's 100% of {n}" for n in range(60) if n != 1]
    with pytest.raises(InputError, match=r"id 3.*source\.on_changed is fail"):
        read_all(source(version_column="changed", on_changed="fail"), units)


REFUSED = {
    "ALTER TABLE reviews DROP COLUMN text": "columns id, day, text, changed, as listed, found no text",
    "ALTER TABLE reviews DROP COLUMN changed": "found no changed any more. Restore the column",
    "ALTER TABLE reviews RENAME COLUMN id TO number": "source.query: ",
    "DROP TABLE reviews": "source.query: ",
}


@pytest.mark.parametrize(("statement", "refusal"), REFUSED.items(), ids=REFUSED)
def test_a_table_that_is_another_than_was_listed_is_refused(reviews: Any, statement: str, refusal: str) -> None:
    connection, source = reviews
    dated = source(version_column="changed")
    units = listed(dated)
    schema = dated.common_schema(units, DAY)
    connection.execute(statement)
    with pytest.raises(InputError, match=re.escape(refusal)):
        read_all(dated, units, schema)


@pytest.mark.parametrize(
    "content", [b"no database" * 99, b"SQLite format 3\0" + b"\xab" * 4000], ids=["text", "random"]
)
def test_a_file_that_is_no_database_is_told_of_the_url_and_not_of_the_query(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "data.db").write_bytes(content)
    with pytest.raises(InputError, match=r"^source\.url: expected a whole database at .*, found DatabaseError: "):
        listed(Sql(url=f"sqlite:///{tmp_path}/data.db", query="SELECT 1 AS id FROM t", key="id"))


def test_every_type_of_postgresql_comes_as_what_it_is(server: str) -> None:
    query = """SELECT 1 AS id, 2.50::numeric AS price, true AS is_new, 'x'::bytea AS content, DATE '2026-01-01' AS day,
        TIMESTAMP WITH TIME ZONE '2026-01-01 12:00+02' AS at, ARRAY[1.5::real, 2.5] AS vector,
        '{"a": [1]}'::jsonb AS about,
        '00000000-0000-0000-0000-000000000001'::uuid AS uuid, NULL::text AS nothing, 1.5::double precision AS x"""
    source = Sql(url=server, query=query, key="id")
    assert read(source, "all").good["1"] == {
        "row_id": "1", "uri": None, "id": 1, "price": decimal.Decimal("2.50"), "is_new": True, "content": b"x",
        "day": datetime.date(2026, 1, 1), "at": datetime.datetime(2026, 1, 1, 10, tzinfo=datetime.UTC),
        "vector": [1.5, 2.5], "about": '{"a":[1]}', "uuid": str(uuid.UUID(int=1)), "nothing": None, "x": 1.5,
    }  # fmt: skip


# What Python or Arrow lacks: the SQL of the values, and the column and the lost rows that come of them.
LACKING = {
    "a day without end": (["date '2026-01-01'", "'infinity'"], [datetime.date(2026, 1, 1)], {"1": "infinity"}),
    "a day before Christ": (["date '0001-01-01'", "'0044-03-15 BC'"], [datetime.date(1, 1, 1)], {"1": "0044-03-15 BC"}),
    "a time without end": (["timestamptz 'infinity'", "'-infinity'"], ["infinity", "-infinity"], {}),
    "the end of a day": (["time '12:00'", "'24:00'"], [datetime.time(12)], {"1": "24:00:00"}),
    "a time with an offset": (["timetz '23:59:59+02'"], ["23:59:59+02:00"], {}),
    "identifiers": ([f"ARRAY['{uuid.UUID(int=1)}'::uuid]"], [[str(uuid.UUID(int=1))]], {}),
    "JSON of several kinds": (["jsonb '{\"a\": 1}'", "'[\"x\", null]'"], ['{"a":1}', '["x",null]'], {}),
    "long numbers in JSON": (["jsonb '{\"a\": 12345678901234567890123}'"], ['{"a":12345678901234567890123}'], {}),
    "no number": (["1.5::numeric", "'NaN'"], [decimal.Decimal("1.5")], {"1": "NaN"}),
}


@pytest.mark.parametrize(("values", "column", "lost"), LACKING.values(), ids=LACKING)
def test_a_value_that_python_or_arrow_lacks_is_kept_as_text_or_costs_its_row(
    server: str, values: list[str], column: list[Any], lost: dict[str, str]
) -> None:
    query = " UNION ALL ".join(f"SELECT {n} AS id, {value} AS x" for n, value in enumerate(values))
    found = read(Sql(url=server, query=query, key="id"), "all")
    assert (found.column("x"), list(found.bad)) == (column, list(lost))
    assert all(text in found.bad[row] for row, text in lost.items())


def test_a_key_of_json_that_the_first_rows_lack_is_not_dropped(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sql, "SAMPLE_UNITS", 1)
    query = """SELECT 1 AS id, jsonb '[{"a": 1}]' AS x UNION ALL SELECT 2, '[{"a": 1, "b": 2}]' ORDER BY id"""
    found = read(Sql(url=server, query=query, key="id", rows_per_unit=1), "all")
    assert (found.column("x"), list(found.bad)) == ([[{"a": 1}]], ["2"])


def test_a_database_that_is_away_is_waited_for_by_another_attempt(tmp_path: Path) -> None:
    source = Sql(url=f"postgresql+psycopg://me@/x?host={tmp_path}", query="SELECT 1 AS id", key="id")
    with pytest.raises(ServiceUnavailable, match=r"the database postgresql\+psycopg://.* did not answer: Operational"):
        listed(source)


def test_a_password_that_is_wrong_is_not_told(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGPASSWORD", "s3cret")
    with pytest.raises(ServiceUnavailable, match="password authentication failed") as caught:
        listed(Sql(url=server, query="SELECT 1 AS id", key="id"))
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("sqlite:////nowhere/at/all.db", "source.url: OperationalError: unable to open database file"),
        ("sqlite:///{here}/${SECRET}\0.db", "source.url: the driver of sqlite.* does not accept it: ValueError"),
        ("postgresql+psycopg://me@127.0.0.1:1/db?wrong=${SECRET}", "source.url: ProgrammingError: invalid .*wrong"),
    ],
)
def test_a_url_that_the_driver_does_not_take_is_told_without_what_variables_stand_for(
    url: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET", "s3cret")
    with pytest.raises(InputError, match=told) as caught:
        listed(Sql(url=url.replace("{here}", str(tmp_path)), query="SELECT 1 AS id", key="id"))
    assert "s3cret" not in str(caught.value)


WRITTEN_OUT = [
    *("postgresql+psycopg://me:s3cret@host/db", "postgresql://me:s3/c@r?et@host/db", "mysql://h/db?password=a/b"),
    *(
        "oracle://u/pw@h",
        "oracle+oracledb://u%2Fpw@h:1521/db",
        "mssql+pyodbc://h/db;pwd=x",
        "x://t@h/?access_token=a/b",
    ),
    "mssql+pyodbc:///?odbc_connect=DRIVER%3D%7BODBC+Driver+18%7D%3BSERVER%3Dh%3BUID%3Du%3BPWD%3Ds3cret",
    *("mssql+pyodbc:///?odbc_connect=DRIVER={x};PWD = {s3;cret}", "bigquery://p/d?credentials_base64=eyJhIjoxfQ=="),
    *("abfs+x://h/db?account_key=a/b+c==", "duckdb:///md:db?motherduck_token=x", "x://h/db?v=Server;AccountKey=a1b2"),
    *("x://h/db?v=hf_abcdefghijklmnopqrstuvwxyz", "x://h/db#password=x"),
]
NOT_SECRET = [
    *("mssql+pyodbc:///?odbc_connect=DRIVER%3D%7Bx%7D%3BUID%3Du%3BPWD%3D${PW}", "oracle://u:${PW}@h/?x=a@b"),
    *("mssql+pyodbc:///?odbc_connect=DRIVER={x};PWD={${PW}}", "mssql+pyodbc:///?odbc_connect=${DSN}"),
    *("bigquery://p/d?credentials_path=/etc/bq.json", "postgresql://me@/db?passfile=/home/me/.pgpass&sslmode=require"),
    *("mysql://me%40corp:${PW}@h/db?ssl_key=/etc/ssl/me.pem&charset=utf8mb4", "sqlite:////var/a@b/data.db"),
    *("postgresql://h/db?user=me@corp&options=-c%20search_path%3Dx", "${DATABASE}"),
]


@pytest.mark.parametrize("url", NOT_SECRET)
def test_a_url_with_variables_and_files_in_the_place_of_secrets_is_taken(url: str) -> None:
    assert Sql(url=url, query="SELECT 1 AS id", key="id").url == url


@pytest.mark.parametrize("query", ["ATTACH '{made}' AS id", "VACUUM INTO '{made}'", "DELETE FROM reviews RETURNING id"])
def test_a_query_of_sqlite_writes_nothing_and_opens_no_other_file(query: str, tmp_path: Path) -> None:
    database = sqlite3.connect(tmp_path / "data.db", isolation_level=None)
    database.execute("PRAGMA journal_mode = wal")
    database.execute("CREATE TABLE reviews AS SELECT 1 AS id")
    url, made = f"sqlite:///{tmp_path}/data.db", tmp_path / "made.db"
    assert list(read(Sql(url=url, query="SELECT * FROM reviews", key="id")).good) == ["1"]
    with pytest.raises(InputError, match=r"source.query: .*(authoriz|denied)"), connection(url) as opened:
        next(rows(opened, query.format(made=made), {"day": DAY}))
    with pytest.raises(InputError, match="unable to open"):
        listed(Sql(url=f"sqlite:///{made}", query="SELECT 1 AS id", key="id"))
    assert not made.exists()
    assert database.execute("SELECT count(*) FROM reviews").fetchall() == [(1,)]
    database.close()


def test_a_query_of_postgresql_writes_nothing(server: str) -> None:
    import psycopg

    with psycopg.connect("dbname=ingest", autocommit=True) as opened:
        opened.execute("CREATE SEQUENCE IF NOT EXISTS written")
    with pytest.raises(InputError, match="read-only transaction"):
        listed(Sql(query="SELECT nextval('written') AS id", key="id", url=server))


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        *(({"url": url}, r"the URL contains .* \$\{ENV_VAR\}") for url in WRITTEN_OUT),
        ({"url": "sqlite:////data.db", "query": "SELECT * FROM t WHERE day = '{partition}'"}, "without quotes"),
    ],
    ids=[*WRITTEN_OUT, "a partition in quotes"],
)
def test_settings_of_which_one_is_no_good_are_refused(settings: dict[str, Any], told: str) -> None:
    with pytest.raises(ValidationError, match=told):
        Sql(**{"query": "SELECT 1 AS id", "key": "id", **settings})


@pytest.mark.parametrize("server_kind", ["sqlite", "postgresql"])
def test_no_character_of_a_query_is_taken_for_a_parameter(
    server_kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Colons are what SQLAlchemy marks a parameter by, a backslash is how it escapes them, and drivers have % and ?."""
    sqlite3.connect(tmp_path / "data.db").execute("VACUUM")
    url = f"sqlite:///{tmp_path}/data.db" if server_kind == "sqlite" else request.getfixturevalue("server")
    texts = ["".join(some) for count in range(1, 6) for some in itertools.product(":\\a$", repeat=count)]
    texts += ["%", "%s", "%(a)s", "?", ":1", "12:30:45", "{first}", "http://a:b@c", "é:é"]
    for some in (texts[first : first + 500] for first in range(0, len(texts), 500)):
        query = "SELECT {partition} AS day, " + ", ".join(f"'{text}' AS c{n}" for n, text in enumerate(some))
        with connection(url) as opened:
            names, found = rows(opened, query, {"partition": "x"})
        assert names == ["day", *(f"c{n}" for n in range(len(some)))]
        assert tuple(found) == ("x", *some)
    if server_kind == "postgresql":
        with connection(url) as opened:
            _, found = rows(opened, "SELECT {day}::date + 1, '5'::int", {"day": DAY})
        assert tuple(found) == (datetime.date(2026, 1, 2), 5), "a cast beside a parameter stays one"
