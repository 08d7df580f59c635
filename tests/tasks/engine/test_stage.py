"""The stages of the rooms: they travel to other processes, and count as stages of the stream."""

import pickle

from overnight.tasks.engine.stage import Stage
from overnight.tasks.errors import STREAM_STAGES
from overnight.tasks.infer.link import Link, StepsBehind
from overnight.tasks.infer.models.python import PythonPredictor
from overnight.tasks.ingest.reading.read_units import Read
from overnight.tasks.ingest.sources.csv import Csv
from overnight.tasks.preprocess.decided_duplicates import Keys
from overnight.tasks.preprocess.kinds import FilterRows
from overnight.tasks.preprocess.run_steps import Steps
from overnight.tasks.preprocess.steps.deduplicate import Deduplicate


def test_every_stage_travels_to_another_process_and_counts_as_one_of_the_stream() -> None:
    steps = Steps((FilterRows(expression="x > 1"),), pace=0.1)
    link = Link(PythonPredictor(target="my:Model", name="a"), steps=Steps(steps.steps, behind="a"))
    stages: list[Stage] = [
        Read(Csv(path="in")),
        steps,
        link,
        StepsBehind(link),
        Keys(steps, Deduplicate(columns=["x"]).rule),
    ]
    assert [stage.label for stage in stages] == ["ingest", "preprocess", "inference a", "steps behind a", "keys"]
    assert {stage.counts_as for stage in stages} == {*STREAM_STAGES} - {"write"}
    assert pickle.loads(pickle.dumps(stages)) == stages
