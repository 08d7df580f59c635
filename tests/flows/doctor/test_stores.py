"""What `overnight doctor` shows of the places of a job, with two real S3 servers."""

from pathlib import Path
from typing import Any

from overnight.flows.doctor.stores import check_stores
from overnight.flows.job.loading import load_job
from overnight.tasks.storage.stores import use
from tests import jobs
from tests.two_stores import two_stores


def test_the_settings_of_each_place_are_shown_without_keys(s3: Any, tmp_path: Path) -> None:
    with two_stores(tmp_path) as stores:
        storage = {**stores.settings, "s3://unused": {"profile": "out"}, "s3://gone": {"profile": "gone"}}
        jobs.write_job(
            tmp_path / "job.yaml",
            source={"kind": "csv", "path": f"{stores.raw}/in"},
            sink={"kind": "parquet", "path": f"{stores.out}/out"},
            state="s3://of-the-environment/state",
            inference=[{"kind": "python", "target": "a:B", "kwargs": {"weights": "s3://gone/w.pt"}}],
            storage=storage,
        )
        findings = list(check_stores(load_job(tmp_path / "job.yaml")))
        use({})
    texts = {finding.found.partition(" ")[0]: (finding.level, finding.found) for finding in findings}
    place = stores.raw.removeprefix("s3://")
    assert texts["source.path"] == (
        "ok",
        f"source.path {stores.raw}/in: endpoint {stores.raw_endpoint}, profile raw, from storage of s3://{place}; "
        "keys: config-file",
    )
    level, text = texts["state"]
    assert level == "ok"
    assert "as set in the environment (AWS_ENDPOINT_URL, " in text
    assert text.endswith("keys: env")
    level, text = texts["inference.0.kwargs.weights"]
    assert level == "wrong"
    assert "expected the profile gone in AWS's configuration where the job runs, found raw, out" in text
    assert texts["s3://unused:"] == ("warning", "s3://unused: no path in the job file is there")
    assert "-key" not in "".join(finding.found for finding in findings)
