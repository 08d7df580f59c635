"""The door of write: what is wrong with a job's columns ends it before the stream, not after the last row."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from overnight.tasks.engine.stream import Sampled
from overnight.tasks.errors import ContractError
from overnight.tasks.preprocess.steps.deduplicate import Deduplicate
from overnight.tasks.state.run import Run
from overnight.tasks.write.checks.settings import Checks
from overnight.tasks.write.sinks.parquet import ParquetSink
from overnight.tasks.write.task import PartStager
from tests.tasks.engine.stages import units_of
from tests.tasks.manifests import write_manifest, write_order
from tests.tasks.runs import make_run


@contextlib.contextmanager
def no_progress(run: Run) -> Iterator[Any]:
    yield print


@pytest.mark.parametrize(
    ("sampled", "reason"),
    [
        (Sampled(pa.schema({"x": pa.int64()})), "deduplicate: expected a published column 'lost', found x"),
        (Sampled(pa.schema({"date": pa.string()})), "like the partition column"),
        (Sampled(error="the model fails for every row"), "the model fails for every row"),
    ],
    ids=["a key that is not published", "the partition's own column", "a model that fails"],
)
def test_what_the_sample_shows_to_be_wrong_ends_the_run_before_its_stream(
    tmp_path: Path, sampled: Sampled, reason: str
) -> None:
    run, units = make_run(tmp_path), units_of(4, rows=1)
    write_manifest(run.manifest, units.drop_columns("settled"), "inputs", None)
    write_order(run.order, units, np.arange(4))
    rules = [Deduplicate(columns=["lost"]).rule]
    stager = PartStager(ParquetSink(path=str(tmp_path / "out")), Checks(), rules, no_progress)
    stream: Any = None  # it is not touched
    with pytest.raises(ContractError, match=reason):
        stager.stage(run, stream, {}, sampled)
