"""The user's own check, `checks.python`: a function that returns problems of the rows before their publish.

def labels(receipt, previous, rows):
    if receipt["columns"]["label"]["classes"].get("unknown", 0) > 10:
        return "too many unknown labels"
"""

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import ray

from overnight.tasks.config.user_code import described, import_target
from overnight.tasks.errors import OvernightError
from overnight.tasks.state.run import Run
from overnight.tasks.storage.location import Location
from overnight.tasks.workers import user_output

if TYPE_CHECKING:
    from pyarrow.dataset import Dataset


def probe(target: str) -> None:
    """Import the function `target` once in a Ray worker, before hours of work. Raise `JobError` if that fails."""
    ray.get(ray.remote(num_cpus=0, max_calls=1)(import_target).remote(target, "write"))


def ask(
    target: str,
    receipt: dict[str, Any],
    previous: dict[str, Any] | None,
    files: Sequence[Location],
    of: Run | None = None,
) -> list[str]:
    """Call `run` in a Ray task, and return the problems. If its process dies twice, that is a problem too."""
    task = ray.remote(num_cpus=1, max_calls=1, max_retries=1)(run)
    try:
        problems: list[str] = ray.get(task.remote(target, receipt, previous, files, of))
    except (ray.exceptions.WorkerCrashedError, ray.exceptions.OutOfMemoryError) as error:
        reason = "It may need too much memory, or call code that crashes."
        return [f"its process died twice: {type(error).__name__}. {reason}"]
    return problems


def run(
    target: str,
    receipt: dict[str, Any],
    previous: dict[str, Any] | None,
    files: Sequence[Location],
    of: Run | None = None,
) -> list[str]:
    """Call the function `target` (`module:function`) with both receipts and the rows, and return its problems.

    An exception, or a result of another form, is a problem too. The function's output is in the log of the run `of`.
    """
    try:
        with user_output.collected(of, f"write {target}") if of else contextlib.nullcontext():
            answer = import_target(target, "write")(receipt, previous, _dataset(files))
    except OvernightError:
        raise
    except Exception as error:
        return [f"it raised {described(error, target.partition(':')[0])}"]
    if answer is None:
        return []
    sentences = [answer] if isinstance(answer, str) else answer
    if isinstance(sentences, list | tuple) and all(isinstance(sentence, str) for sentence in sentences):
        return list(sentences)
    return [f"expected None, a sentence or a list of sentences, found {type(answer).__name__} {answer!r:.80}"]


def _dataset(files: Sequence[Location]) -> "Dataset":
    from pyarrow import dataset  # imports pandas

    if not files:
        return dataset.dataset(pa.table({}))
    filesystem, _ = files[0].open_filesystem()
    return dataset.dataset([file.open_filesystem()[1] for file in files], filesystem=filesystem, format="parquet")
