"""The parser of job files: a job comes out, or an error of the job's, and never another one."""

from collections.abc import Callable
from pathlib import Path

import yaml

from overnight.flows.job.loading import load_job
from overnight.tasks.errors import JobError
from tests.fuzz.mutations import Sample
from tests.fuzz.targets import READ, REFUSED, Target

SHIPPED = Path(__file__).parents[2] / "deployments/jobs"
EVERYTHING = b"""name: all
source: {kind: csv, path: "in/date={partition}/", types: {n: int64}, wait_for: {file: _SUCCESS, minutes: 1}}
shuffle: {kind: rows, seed: 7}
preprocess:
- {kind: filter_rows, expression: "n > 1 and text like 'a%' or n is null"}
- {kind: derive_columns, columns: {m: "n * 2 + length(text)", day: "cast(n as varchar)"}}
- {kind: split_text, size: 10, overlap: 4}
inference:
- &first {kind: python, name: a, target: "mine:Model", kwargs: {x: [1, 2.5, null, true, .inf]}, workers: [1, 4]}
- {<<: *first, name: b}
checks: {min_rows: 1, max_quarantined: 0.01}
sink: {kind: parquet, path: "~/out", target_file_size: 1e6}
schedule: {cron: "0 2 * * *", timezone: Europe/Berlin, offset_days: -1, deadline: "06:00", lookback_days: 3}
retries: {attempts: 2}
row_timeout_seconds: 10
"""


def parser(folder: Path) -> Target:
    shipped = [Sample(path.name, path.read_bytes()) for path in sorted(SHIPPED.glob("*.yaml"))]

    def run(sample: Sample) -> str:
        path = folder / "job.yaml"
        path.write_bytes(sample.content)
        try:
            job = load_job(path)
        except JobError as error:
            if not str(error).startswith(str(path)):
                raise
            return REFUSED
        yaml.safe_dump(job.settings())
        assert job.result_settings()["source"]
        assert job.steps is not None
        assert job.timezone
        assert job.offset is not None  # 0 days are an offset
        return READ

    return Target((Sample("all.yaml", EVERYTHING), *shipped), run)


TARGETS: dict[str, Callable[[Path], Target]] = {"job": parser}
