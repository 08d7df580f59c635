"""The user's own check, `checks.python`: a function that returns problems of the rows before their publish.

    def labels(receipt, previous, rows):
        if receipt["columns"]["label"]["classes"].get("unknown", 0) > 10:
            return "too many unknown labels"

`receipt` is the receipt as it will be written, including `columns`. `previous` is the receipt for comparison, or None.
`rows` is a `pyarrow.dataset.Dataset` of the rows as they will be published, which reads only the requested columns. The
function returns None if all is well, or a sentence or a list of sentences; an exception is a failed check too.

It runs as a Ray task of its own, in a fresh process: it may use a whole CPU. If its process dies twice, that is a
failed check too.
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
    """Import the function `target` (`module:function`) once in a Ray worker, before hours of work.

    Raise `JobError` if it cannot be imported.
    """
    ray.get(ray.remote(num_cpus=0, max_calls=1)(import_target).remote(target, "write"))


def ask(
    target: str,
    receipt: dict[str, Any],
    previous: dict[str, Any] | None,
    files: Sequence[Location],
    of: Run | None = None,
) -> list[str]:
    """Call the user's function in a Ray task, and return the problems that it finds, as sentences.

    If the task's process dies twice, that is a problem too.

    Args:
        target: The function, as `module:function`.
        receipt: The receipt as it will be written, which the function gets.
        previous: The receipt for comparison, which the function gets; None if there is none.
        files: The Parquet files with the rows to publish, which the function gets as a dataset.
        of: The run whose log gets the function's output; None for no log.
    """
    work = ray.remote(num_cpus=1, max_calls=1, max_retries=1)(run)
    try:
        answer: list[str] = ray.get(work.remote(target, receipt, previous, files, of))
    except (ray.exceptions.WorkerCrashedError, ray.exceptions.OutOfMemoryError) as error:
        return [
            f"its process died twice: {type(error).__name__}. It may need too much memory, or call code that crashes."
        ]
    return answer


def run(
    target: str,
    receipt: dict[str, Any],
    previous: dict[str, Any] | None,
    files: Sequence[Location],
    of: Run | None = None,
) -> list[str]:
    """Call the user's function in this process, and return the problems that it finds, as sentences.

    An exception of the function is a problem too, and so is a result that is not None, a sentence or a list of
    sentences.

    Args:
        target: The function, as `module:function`.
        receipt: The receipt as it will be written, which the function gets.
        previous: The receipt for comparison, which the function gets; None if there is none.
        files: The Parquet files with the rows to publish, which the function gets as a dataset.
        of: The run whose log gets the function's output; None for no log.
    """
    try:
        with user_output.collected(of, f"write {target}") if of else contextlib.nullcontext():
            function = import_target(target, "write")
            answer = function(receipt, previous, _dataset(files))
    except OvernightError:
        raise
    except Exception as error:
        return [f"it raised {described(error, target.partition(':')[0])}"]
    sentences = [answer] if isinstance(answer, str) else [] if answer is None else answer
    if isinstance(sentences, list | tuple) and all(isinstance(sentence, str) for sentence in sentences):
        return list(sentences)
    return [f"expected None, a sentence or a list of sentences, found {type(answer).__name__} {answer!r:.80}"]


def _dataset(files: Sequence[Location]) -> "Dataset":
    from pyarrow import dataset  # imports pandas

    if not files:
        return dataset.dataset(pa.table({}))
    opened = [file.open_filesystem() for file in files]
    return dataset.dataset([path for _, path in opened], filesystem=opened[0][0], format="parquet")
