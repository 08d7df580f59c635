"""Events of OpenLineage at each end of a run: to a real file and to a real HTTP server, in the library's classes.

With `OPENLINEAGE_SPEC`, the folder `spec` of a checkout of OpenLineage, each event is validated by its JSON schemas.
"""

import json
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pyarrow as pa
import pytest
from prefect.logging import disable_run_logger
from referencing import Registry, Resource

from overnight.flows.job.model import Job
from overnight.flows.notices import run_notice
from overnight.flows.notices.datasets import inputs_of
from overnight.flows.notices.run_notice import noticed
from overnight.flows.runs.attempt import Scope, opened
from overnight.flows.runs.run import describe_run
from overnight.tasks.errors import InputError, StageFailed
from overnight.tasks.state.manifest import UNITS, begin_manifest
from overnight.tasks.state.run import Run
from tests import webhook as webhooks
from tests.flows.report.runs import job_of, publish, receipt_of

DAY = "2026-01-09"
OWN = json.loads((Path(__file__).parents[3] / "docs/_static/openlineage.json").read_text())
SPEC = os.environ.get("OPENLINEAGE_SPEC")
NASTY = "</script><!channel> \x1b[31m \u202e row"


@pytest.fixture
def events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The file of the events, as the variables of the library set it."""
    monkeypatch.setattr(run_notice, "get_run_logger", lambda: logging.getLogger("a run"))
    file = tmp_path / "events.jsonl"
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT__TYPE", "file")
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT__LOG_FILE_PATH", str(file))
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT__APPEND", "true")
    with disable_run_logger():
        yield file


def read(file: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    for line in lines:
        check(line)
    return lines


def check(event: dict[str, Any]) -> None:
    """Validate an event by the schema of its facets, as far as the schemas are here."""
    own = [event["run"]["facets"].get("overnight_run")]
    own += [dataset["facets"].get("overnight_inputs") for dataset in event["inputs"]]
    schemas = {OWN["$id"]: OWN}
    base = {"$id": "https://openlineage.io/spec/2-0-2/OpenLineage.json", "$defs": {"RunFacet": {}, "DatasetFacet": {}}}
    base["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schemas[base["$id"]] = base  # type: ignore[index]
    facets: list[Any] = [facet for facet in own if facet]
    if SPEC:
        for file in Path(SPEC).glob("**/*.json"):
            schema = json.loads(file.read_text())
            if "$id" in schema:
                schemas[schema["$id"]] = schema
        facets += [*event["run"]["facets"].values(), *event["job"]["facets"].values()]
        for dataset in [*event["inputs"], *event["outputs"]]:
            facets += dataset["facets"].values()
            facets += [*dataset.get("inputFacets", {}).values(), *dataset.get("outputFacets", {}).values()]
        _validate(event, event["schemaURL"], schemas)
    for facet in facets:
        _validate(facet, facet["_schemaURL"], schemas)


def _validate(value: Any, url: str, schemas: dict[str, Any]) -> None:
    resources = [(name, Resource.from_contents(schema)) for name, schema in schemas.items()]
    registry: Any = Registry().with_resources(resources)
    jsonschema.Draft202012Validator({"$ref": url}, registry=registry).validate(value)


def list_inputs(run: Run, count: int = 2) -> None:
    paths = [f"photo-{number:03}.png" for number in range(count)]
    columns = {"path": paths, "uri": [f"s3://bucket/raw/{path}" for path in paths], "size": [10] * count}
    columns |= {"version": [f"etag-{path}" for path in paths], "first_row": [0] * count, "rows": [1] * count}
    columns |= {"unit": list(range(count)), "row_group": [None] * count}
    with begin_manifest(run.manifest) as manifest:
        manifest.add(pa.table(columns, UNITS))
        manifest.finish("digest-of-inputs", None)


def end(job: Job, folder: Path, error: BaseException | None = None, **receipt: Any) -> None:
    with (
        noticed(job, DAY, "job.yaml", False) as notice,
        opened(job, Scope(describe_run(job, DAY)), True, notice) as run,
    ):
        list_inputs(run)
        if error:
            raise error
        facts = {"generation": run.generation, "inputs": "digest-of-inputs", "bytes_in": 20, **receipt}
        notice.end(run, publish(folder, receipt_of(DAY, **facts), pa.table({"label": ["cat"] * 10})))


def test_a_publish_has_inputs_with_versions_columns_statistics_and_what_decided_it(
    events: Path, tmp_path: Path
) -> None:
    job = job_of(tmp_path, source={"kind": "csv", "path": "s3://bucket/raw/date={partition}"})
    end(job, tmp_path, columns={"label": {"type": "string", "rows": 10, "nulls": 0}})
    start, complete = read(events)
    assert (start["eventType"], complete["eventType"]) == ("START", "COMPLETE")
    assert start["run"]["runId"] == complete["run"]["runId"]
    [dataset] = complete["inputs"]
    assert (dataset["namespace"], dataset["name"]) == ("s3://bucket", "raw")
    assert dataset["facets"]["version"]["datasetVersion"] == "digest-of-inputs"
    assert dataset["facets"]["overnight_inputs"]["inputs"][1] == {
        **{"uri": "s3://bucket/raw/photo-001.png", "size": 10, "version": "etag-photo-001.png"}
    }
    assert dataset["inputFacets"]["inputStatistics"]["rowCount"] == 10
    [table] = complete["outputs"]
    assert (table["namespace"], table["name"]) == ("file", f"{tmp_path}/out")
    assert table["facets"]["schema"]["fields"] == [{"name": "label", "type": "string", "fields": []}]
    statistics = table["outputFacets"]["outputStatistics"]
    assert (statistics["rowCount"], statistics["fileCount"]) == (10, 1)
    assert statistics["size"] == sum(file.stat().st_size for file in (tmp_path / "out").glob("date=*/*.parquet"))
    assert complete["run"]["facets"]["overnight_run"]["partition"] == DAY
    assert complete["run"]["facets"]["overnight_run"]["fingerprint"] == describe_run(job, DAY).fingerprint


def test_the_digests_of_models_are_in_the_event(events: Path, tmp_path: Path) -> None:
    (tmp_path / "weights.pt").write_bytes(b"weights")
    model = {"kind": "python", "target": "json:JSONDecoder", "name": "parse", "num_gpus": 0}
    end(job_of(tmp_path, inference=[model]), tmp_path)
    [found] = read(events)[1]["run"]["facets"]["overnight_run"]["models"]
    assert (found["name"], found["kind"]) == ("parse", "python")
    assert found["files"]


def test_a_failure_has_its_message_and_a_cancelled_run_is_aborted(events: Path, tmp_path: Path) -> None:
    with pytest.raises(StageFailed):
        end(job_of(tmp_path), tmp_path, StageFailed(NASTY, "infer"))
    with pytest.raises(KeyboardInterrupt):
        end(job_of(tmp_path), tmp_path, KeyboardInterrupt())
    lines = read(events)
    assert [line["eventType"] for line in lines] == ["START", "FAIL", "START", "ABORT"]
    message = lines[1]["run"]["facets"]["errorMessage"]["message"]
    assert message == "infer: </script><!channel> \\x1b[31m \\u202e row"
    assert lines[1]["inputs"][0]["facets"]["overnight_inputs"]["inputs"]
    assert "errorMessage" not in lines[3]["run"]["facets"]
    assert len({line["run"]["runId"] for line in lines}) == 2


def test_a_run_that_fails_before_it_holds_its_partition_has_both_events(events: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError), noticed(job_of(tmp_path), DAY, "job.yaml", False):
        raise InputError("expected a model, found none")
    assert [line["eventType"] for line in read(events)] == ["START", "FAIL"]


def test_an_event_has_a_bounded_number_of_inputs(events: Path, tmp_path: Path) -> None:
    paths = [f"s3://bucket/{number}" for number in range(30)]
    job = job_of(tmp_path, source={"kind": "csv", "path": paths})
    with opened(job, Scope(describe_run(job, "all")), True) as run:
        list_inputs(run, 300)
        datasets = inputs_of(job, run, {})
    assert len(datasets) == 20
    assert len(datasets[0].facets["overnight_inputs"]["inputs"]) == 100


def test_without_a_place_there_are_no_events(events: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("OPENLINEAGE")]:
        monkeypatch.delenv(name)
    end(job_of(tmp_path), tmp_path)
    assert not events.exists()


def test_events_go_to_an_address_and_a_server_that_refuses_is_a_warning_without_the_key(
    events: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name in [name for name in os.environ if name.startswith("OPENLINEAGE")]:
        monkeypatch.delenv(name)
    with webhooks.webhook() as server:
        monkeypatch.setenv("OPENLINEAGE_URL", server.url.removesuffix(f"/{webhooks.SECRET}"))
        monkeypatch.setenv("OPENLINEAGE_API_KEY", "key-of-lineage")
        end(job_of(tmp_path), tmp_path)
        assert [post["eventType"] for post in server.posts] == ["START", "COMPLETE"]
        server.status = 403
        end(job_of(tmp_path), tmp_path)
    assert "notice not sent: OpenLineage did not take" in caplog.text
    assert "key-of-lineage" not in caplog.text
    assert not [name for name in os.environ if name.startswith("OPENLINEAGE__")]
