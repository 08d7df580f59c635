"""Answers across runs: what a generation reused of earlier runs, and what it leaves to later ones, from its logs."""

import contextlib
import json
import logging
from array import array
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from overnight.tasks.errors import OvernightError
from overnight.tasks.reuse.kept_answers import keep, remove_old
from overnight.tasks.reuse.settings import REUSED, TOKENS, Reuse
from overnight.tasks.state.run import Run
from overnight.tasks.storage.filesystems import is_local
from overnight.tasks.storage.location import Location

FILES_AT_ONCE = 64  # of an object store, each with the answers of a few seconds
PRICES = ("price_per_million_input_tokens", "price_per_million_output_tokens", "price_per_million_cached_tokens")
MILLION = 1_000_000

_log = logging.getLogger("overnight.reuse")


def reused_answers(run: Run, settings: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return for each model that reuses answers how many it reused, their tokens, and their cost if it is known."""
    savings: dict[str, dict[str, Any]] = {}
    for name, model in _models(settings):
        keys, *tokens = array("Q"), array("q"), array("q"), array("q")
        for line in _lines(run.answers / f"{name}{REUSED}"):
            keys.append(int(line["key"][:16], 16))
            for column, field in zip(tokens, TOKENS, strict=True):
                column.append(line["answer"].get(field) or 0)
        _, first = np.unique(np.array(keys), return_index=True)  # the stream runs the rows of a trial again
        prompt, completion, cache = (int(np.array(column)[first].sum()) for column in tokens)
        savings[name] = {"answers": len(first), "prompt_tokens": prompt, "completion_tokens": completion}
        input_price, output_price, cached_price = map(model.get, PRICES)
        if input_price is None or (output_price is None and completion):  # an embedding has only input
            continue
        cost = prompt * input_price + completion * (output_price or 0)
        if cached_price is not None:
            cost += cache * (cached_price - input_price)
        savings[name]["cost"] = cost / MILLION
    return savings


def keep_answers(run: Run, receipt: Mapping[str, Any]) -> None:
    """Keep the run's answers for later runs, and remove the job's old ones. A failure only loses the saving."""
    for name, model in _models(receipt.get("settings") or {}):
        moment = receipt["finished_at"].replace("-", "").replace(":", "")[:15]
        reuse = Reuse(**model["reuse"])
        folder = Location(reuse.path) / run.job
        try:
            keep(folder, f"{moment}-{run.generation}-{name}", _to_keep(run.answers / name))
            remove_old(folder, reuse.days)
        except (OvernightError, OSError) as error:
            _log.warning("reuse: the answers of this run are not kept for later runs, in %s: %s", folder, error)


def _models(settings: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the names and settings of the models that reuse answers."""
    for model in settings.get("inference", ()):
        if model.get("reuse"):
            yield model.get("name") or model["kind"], model


def _to_keep(log: Location) -> Iterator[dict[str, Any]]:
    for line in _lines(log):
        if reuse := line.get("reuse"):
            yield {"key": reuse["key"], "answer": line["answer"], "at": reuse["at"]}


def _lines(log: Location) -> Iterator[dict[str, Any]]:
    """Yield the whole lines of a model's log."""
    for lines in _files(log):
        for line in lines:
            with contextlib.suppress(ValueError):  # cut off when its process died
                yield json.loads(line)


def _files(log: Location) -> Iterator[Any]:
    names = log.names()
    if is_local(log.open_filesystem()[0]):  # a process has one file there, which may be large
        for name in names:
            with (log / name).open() as lines:
                yield lines
        return
    for start in range(0, len(names), FILES_AT_ONCE):
        for content in log.read_each(names[start : start + FILES_AT_ONCE]).values():
            yield content.splitlines()
