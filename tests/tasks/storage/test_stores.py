"""Places in S3 with settings of their own, on two real servers that each know one key."""

import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import boto3
import pyarrow as pa
import pytest
from deltalake import write_deltalake

from overnight.tasks.errors import AccessDenied, JobError
from overnight.tasks.ingest.sources.delta import Delta
from overnight.tasks.ingest.sources.iceberg import Iceberg
from overnight.tasks.ingest.sources.jsonl import Jsonl
from overnight.tasks.ingest.sources.lance import Lance
from overnight.tasks.ingest.versioned_file import SourceFile, read_whole
from overnight.tasks.storage.fetch import fetch, list_folder
from overnight.tasks.storage.location import Location
from overnight.tasks.storage.object_store import delta_options, kept_for, storage_options
from overnight.tasks.storage.stores import Store, Stores, in_use, joined, use
from overnight.tasks.write.merge.merge_parts import FileWriter
from tests.contracts.sinks.publications import columns_of, publish_parts, read_files, rows_in_table, sink_of
from tests.tasks.ingest.conftest import read_all
from tests.tasks.runs import make_run
from tests.two_stores import TwoStores, server, two_stores


@pytest.fixture(scope="module")
def stores(s3: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoStores]:
    with two_stores(tmp_path_factory.mktemp("stores")) as stores:
        yield stores


@pytest.fixture(autouse=True)
def _as_named(stores: TwoStores) -> Iterator[None]:
    use(stores.stores)
    yield
    use({})


def test_the_longest_place_that_contains_a_uri_decides() -> None:
    whole, folder = Store(profile="whole"), Store(profile="folder")
    stores = Stores({"s3://b/in/": folder, "s3a://b": whole})
    for uri, store in {
        "s3://b": whole,
        "s3://b/other/x": whole,
        "s3://b/in": folder,
        "s3a://b/in/2026/x.csv": folder,
        "s3://b/inside/x": whole,
        "s3://bb/in/x": None,
        "gs://b/in/x": None,
        "/b/in/x": None,
    }.items():
        assert stores.at(uri)[1] == store, uri


def test_variables_are_expanded_where_a_place_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEAM_BUCKET", "b")
    monkeypatch.setenv("TEAM_PROFILE", "team")
    stores = Stores({"s3://${TEAM_BUCKET}/in": Store(profile="${TEAM_PROFILE}")})
    assert stores.at("s3://b/in/x") == ("b/in", Store(profile="team"))
    monkeypatch.setenv("TEAM_ADDRESS", "https://me:hunter2@minio")
    with pytest.raises(JobError, match="without user, password") as error:
        Stores({"s3://b": Store(endpoint="${TEAM_ADDRESS}")}).at("s3://b/x")
    assert "hunter2" not in str(error.value)
    with pytest.raises(JobError, match=r"storage: role_arn: \$\{TEAM_ADDRESS\}: String should match") as error:
        Stores({"s3://b": Store(role_arn="${TEAM_ADDRESS}")}).at("s3://b/x")
    assert "hunter2" not in str(error.value)


def test_the_settings_of_the_first_of_two_jobs_hold_for_a_place_that_both_name() -> None:
    first, second = Store(profile="first"), Store(profile="second")
    stores = Stores(joined({"s3a://b/": first}, {"s3://b": second, "s3a://b/": second, "s3://c": second}))
    assert (stores.at("s3://b/x")[1], stores.at("s3://c/x")[1]) == (first, second)


def test_files_are_copied_from_one_server_to_the_other(stores: TwoStores) -> None:
    source, target = Location(f"{stores.raw}/in/a.txt"), Location(f"{stores.out}/a.txt")
    source.write_bytes(b"across")
    source.copy_to(target)
    assert (target.read_bytes(), target.parent.names()) == (b"across", ["a.txt"])
    client = boto3.Session(profile_name="out").client("s3", endpoint_url=stores.out_endpoint)
    assert client.list_objects_v2(Bucket=stores.out.removeprefix("s3://"))["KeyCount"] == 1


def test_the_keys_of_another_profile_are_refused(stores: TwoStores) -> None:
    Location(f"{stores.raw}/secret.txt").write_bytes(b"x")
    use({stores.raw: Store(endpoint=stores.raw_endpoint, profile="out")})
    with pytest.raises(AccessDenied):
        Location(f"{stores.raw}/other.txt").write_bytes(b"x")
    with pytest.raises(AccessDenied):
        Location(f"{stores.raw}/secret.txt").read_bytes()


def test_a_profile_that_is_missing_is_named_with_those_that_exist(stores: TwoStores) -> None:
    use({stores.raw: Store(profile="rwa")})
    with pytest.raises(JobError, match=r"expected the profile rwa .* found raw, out"):
        Location(f"{stores.raw}/a.txt").exists()


def test_a_role_is_assumed_with_the_keys_of_the_profile(stores: TwoStores) -> None:
    with server("ASIA") as endpoint:  # the beginning of a key that STS issues; the session's S3 server is the STS
        role = Store(endpoint=endpoint, profile="raw", region="us-east-1", role_arn="arn:aws:iam::123456789012:role/x")
        use({"s3://of-role": role})
        place = Location("s3://of-role/deep")
        issued = {"aws_access_key_id": "ASIA1", "aws_secret_access_key": "x", "endpoint_url": endpoint}
        boto3.client("s3", **issued).create_bucket(Bucket="of-role")
        (place / "a.txt").write_bytes(b"by a role")
        assert (place / "a.txt").read_bytes() == b"by a role"
        assert storage_options("s3://of-role/deep")["aws_session_token"]
        use({"s3://of-role": Store(endpoint=endpoint, profile="raw")})
        with pytest.raises(AccessDenied):
            (place / "a.txt").read_bytes()


def test_one_block_reads_files_of_both_servers(stores: TwoStores) -> None:
    places = [Location(f"{stores.raw}/block/a"), Location(f"{stores.out}/block/b"), Location(f"{stores.raw}/block/c")]
    for number, place in enumerate(places):
        place.write_bytes(bytes([number]))
    files = [SourceFile(place.uri, "", None) for place in places]
    assert read_whole(files) == [b"\0", b"\1", b"\2"]


@pytest.mark.parametrize("kind", ["parquet", "jsonl", "csv", "images", "delta", "iceberg", "lance"])
def test_a_sink_publishes_to_one_server_what_is_staged_on_the_other(
    stores: TwoStores, tmp_path: Path, kind: str
) -> None:
    place, state = f"{stores.out}/{kind}/out", Location(f"{stores.raw}/{kind}/_overnight")
    run = make_run(f"{stores.out}/{kind}", partition="all", state=state)
    sink = sink_of(kind, tmp_path).model_copy(update={"path": place})
    files = publish_parts(run, sink, columns_of(kind, [1, 2]), columns_of(kind, [3]))
    rows = [file for file in files if not file.endswith(".images")]
    table = rows_in_table(run, sink) if kind in ("delta", "iceberg", "lance") else read_files(run.sink, rows)
    assert sorted(table["x"].to_pylist()) == [1, 2, 3]


def test_tables_are_read_with_the_settings_of_their_place(stores: TwoStores, tmp_path: Path) -> None:
    rows, uri = pa.table({"x": [1, 2]}), f"{stores.raw}/delta"
    write_deltalake(uri, rows, storage_options=delta_options(uri))
    run = make_run(stores.raw, partition="all", sink=Location(f"{stores.raw}/lance"), state=Location(str(tmp_path)))
    publish_parts(run, sink_of("lance", tmp_path), {"x": [1, 2]})
    run = replace(run, sink=Location(f"{stores.raw}/iceberg"), state=Location(f"{tmp_path}/2"))
    sink = sink_of("iceberg", tmp_path).model_copy(update={"path": f"{stores.raw}/iceberg"})
    publish_parts(run, sink, {"x": [1, 2]})
    Location(f"{stores.raw}/jsonl/a.jsonl").write_bytes(b'{"x": 1}\n{"x": 2}\n')
    catalog = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": stores.raw}
    for source in (
        Delta(path=uri),
        Lance(path=f"{stores.raw}/lance"),
        Iceberg(table="results.x", catalog=catalog),
        Jsonl(path=f"{stores.raw}/jsonl"),
    ):
        assert sorted(read_all(source, partition="all").column("x")) == [1, 2], source.kind


def test_a_model_is_fetched_with_the_settings_of_its_place(stores: TwoStores, tmp_path: Path) -> None:
    model = Location(f"{stores.raw}/model")
    (model / "weights.bin").write_bytes(b"weights")
    fetch(model, list_folder(model), tmp_path)
    assert (tmp_path / "weights.bin").read_bytes() == b"weights"


@pytest.mark.parametrize("name", ["run", "writer of a file"])
def test_a_process_that_receives_a_run_reaches_the_places_of_its_job(
    stores: TwoStores, tmp_path: Path, name: str
) -> None:
    Location(f"{stores.raw}/received.txt").write_bytes(b"received")
    run = make_run(tmp_path, stores=in_use())
    writer = FileWriter(run.parts, run.sink, "", pa.schema([]), "none")
    content = pickle.dumps(run if name == "run" else writer)
    assert b"-key" not in content
    (tmp_path / "run").write_bytes(content)
    code = (
        "import pickle, sys; pickle.load(open(sys.argv[1], 'rb'));"
        "from overnight.tasks.storage.location import Location; print(Location(sys.argv[2]).read_bytes())"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "run"), f"{stores.raw}/received.txt"]
    process = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert process.stdout == "b'received'\n", process.stderr


def test_a_kept_client_is_another_one_for_other_settings(stores: TwoStores) -> None:
    key = kept_for(stores.raw)
    assert key not in ((), kept_for(stores.out))
    use({})
    assert kept_for(stores.raw) == ()
    assert storage_options(stores.raw)["aws_endpoint_url"] == os.environ["AWS_ENDPOINT_URL"]
