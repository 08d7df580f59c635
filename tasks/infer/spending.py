"""The spending of a run: it begins with the journals of paid answers, and each worker then has an account."""

import contextlib
import json
import os
import uuid
from collections.abc import Iterable, Sequence
from functools import partial
from typing import TypeVar

from overnight.tasks.infer.endpoint.settings import RemoteModel
from overnight.tasks.infer.predictor import Predictor
from overnight.tasks.state.run import Run
from overnight.tasks.storage.location import Location
from overnight.tasks.workers import supervisor
from overnight.tasks.workers.spending import Paid, Reply, Settled, Spending
from overnight.tasks.workers.supervisor import Supervisor

P = TypeVar("P", bound=Predictor)


def begin_spending(run: Run, models: Iterable[Predictor]) -> None:
    """Give the run's supervisor what all attempts of the generation have paid, if a model sends requests."""
    paid = {}
    for model in models:
        if isinstance(model, RemoteModel):
            paid[_name(model)] = read_paid(answers_of(run, model), model)
    if paid:
        supervisor.ask(run, Supervisor.begin_spending, Spending(run.budget, run.ends_at, paid))


def with_account(model: P, run: Run) -> P:
    """Return the model with an account of the run. A preview has no supervisor, and pays without one."""
    if not isinstance(model, RemoteModel) or not supervisor.is_there(run):
        return model
    worker = f"{os.getpid()}-{uuid.uuid4().hex}"
    return model.charged_by(partial(_exchange, run, worker, _name(model)))


def answers_of(run: Run, model: Predictor) -> Location:
    """Return the directory of the model's paid answers."""
    return run.answers / _name(model)


def read_paid(folder: Location, model: RemoteModel) -> Paid:
    """Return the number of answers in a log, and what they cost with the prices of today, failed ones included."""
    return sum((paid_in(folder / name, model) for name in folder.names()), Paid())


def paid_in(file: Location, model: RemoteModel) -> Paid:
    """Return the number of answers in a file of a log, and what they cost."""
    paid = Paid()
    with file.open() as lines:
        for line in lines:
            with contextlib.suppress(ValueError, KeyError):  # cut off when its process died
                paid += Paid(1, model.paid_for(json.loads(line)["answer"]))
    return paid


def _name(model: Predictor) -> str:
    return model.name or model.kind


def _exchange(run: Run, worker: str, model: str, settled: Sequence[Settled], wanted: Sequence[Paid]) -> Reply | None:
    return supervisor.ask(run, Supervisor.exchange, worker, model, list(settled), list(wanted))
