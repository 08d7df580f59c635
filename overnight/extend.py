"""The names that your own sources, steps, models and sinks import. Later versions keep these names.

A package registers such a class with an entry point: see docs/how-to/extension.md. The class is a frozen pydantic
model. Its fields are the settings of the job file, `kind` is its tag, and its methods do the work.
"""

from overnight.tasks.config.settings import Adjustable
from overnight.tasks.errors import JobError, RowError
from overnight.tasks.infer.predictor import Batch, Offer, Predict, Predictor
from overnight.tasks.ingest.source import FileSource, Source
from overnight.tasks.ingest.sources.whole_files import WholeFiles
from overnight.tasks.preprocess.step import PreprocessStep
from overnight.tasks.rows.column_effect import ColumnEffect
from overnight.tasks.rows.result import Outcome, Work, several
from overnight.tasks.write.sink import Sink
from overnight.tasks.write.sinks.hive_files import HiveFiles

__all__ = [
    "Adjustable",
    "Batch",
    "ColumnEffect",
    "FileSource",
    "HiveFiles",
    "JobError",
    "Offer",
    "Outcome",
    "Predict",
    "Predictor",
    "PreprocessStep",
    "RowError",
    "Sink",
    "Source",
    "WholeFiles",
    "Work",
    "several",
]
