"""Follow the columns of a job from the source to the sink by the settings alone, before any input is read.

A source of files has known columns. The columns of a table are known only to the run. For a table, a name is refused in
two cases. Either an earlier step removed the column, or the name resembles one that an earlier model makes, with its
prefix. A new name is refused if a column that is known has it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches

from overnight.flows.job.model import Job
from overnight.tasks.errors import did_you_mean
from overnight.tasks.infer.kinds import Predictor
from overnight.tasks.preprocess.kinds import PreprocessStep
from overnight.tasks.rows.blocks import IDENTITY
from overnight.tasks.rows.column_effect import ColumnEffect, in_use


@dataclass(frozen=True)
class Known:
    """The columns that are known at one place of the chain of steps and models.

    `names` are columns that exist. A name that begins with one of `open_prefixes` may exist too; an empty prefix allows
    any name. `removed` maps a removed column to the entry of the job file that removed it. `made` maps a model's prefix
    to the columns that the model makes, without the prefix. `unused_prefix` is the prefix that a job's only model would
    have beside others.
    """

    names: tuple[str, ...]
    open_prefixes: tuple[str, ...] = ()
    removed: dict[str, str] = field(default_factory=dict)
    made: dict[str, tuple[str, ...]] = field(default_factory=dict)
    unused_prefix: str = ""

    def lack(self, name: str) -> str | None:
        """Return why no row has a column `name`, as a text that may be empty. Return None if a row may have it."""
        if name in self.names:
            return None
        if name in self.removed:
            return f"{self.removed[name]} removes it"
        if not name.startswith(self.open_prefixes):
            rest = name.removeprefix(self.unused_prefix)
            return f"a job with one model has no prefixes, it is {rest}" if rest in self.names else ""
        for prefix, made in self.made.items():
            rest = name.removeprefix(prefix)
            if rest != name and (near := get_close_matches(rest, made, 1)):
                return f"the model {prefix.removesuffix('_')} makes {prefix}{near[0]}"
        return None

    def folded(self) -> "Known":
        """Return the columns with all names in lower case, because SQL ignores the case of names."""
        return Known(
            tuple(map(str.lower, self.names)),
            tuple(map(str.lower, self.open_prefixes)),
            {name.lower(): by for name, by in self.removed.items()},
            {prefix.lower(): made for prefix, made in self.made.items()},
            self.unused_prefix.lower(),
        )

    def after(self, effect: ColumnEffect, label: str) -> "Known":
        """Return the columns that are known after a step or model with this effect.

        `label` is the name of its entry in the job file, for messages. `removed` of the result has this label for each
        column that the entry removes. If the effect has `makes_others`, any column may exist, and `removed` is empty.
        """
        stay = self.names if effect.keeps is None else (*IDENTITY, *effect.keeps)
        names = tuple(dict.fromkeys([*(name for name in stay if name not in effect.removes), *effect.makes]))
        gone = {*effect.removes, *(self.names if effect.keeps is not None else ())} - {*names}
        removed = {} if effect.makes_others else self.removed | dict.fromkeys(gone, label)
        open_prefixes = () if effect.keeps is not None else self.open_prefixes
        return replace(
            self,
            names=names,
            open_prefixes=("",) if effect.makes_others else open_prefixes,
            removed={name: by for name, by in removed.items() if name not in names},
        )

    def after_model(self, effect: ColumnEffect, name: str | None, is_only: bool) -> "Known":
        """Return the columns after a model. Their names begin with the model's `name`, unless it is the job's only."""
        prefix, unused = ("", f"{name}_" if name else "") if is_only else (f"{name}_", "")
        makes = tuple(f"{prefix}{name}" for name in effect.makes)
        found = replace(self.after(replace(effect, makes=makes, makes_others=False), ""), unused_prefix=unused)
        if effect.makes_others:
            removed = {name: by for name, by in found.removed.items() if not name.startswith(prefix)}
            return replace(found, open_prefixes=(*found.open_prefixes, prefix), removed=removed)
        return replace(found, made=found.made | {prefix: tuple(effect.makes)}) if prefix else found

    def shown(self) -> str:
        """Return the names of the columns as one text, for a message."""
        more = ", and others that only a run shows" if self.open_prefixes else ""
        return f"{', '.join(self.names)}{more}"


def column_problems(job: Job, found: Sequence[str] | None = None) -> list[str]:
    """Return a message for each column that the job names although no row can have it, with similar names.

    There is a message too for each name that a step gives to a column although another column has it.

    `found` are the columns of the inputs if they were read. Without them, only the settings show the columns.
    """
    own = job.source.column_names_made() if found is None else found
    names = (*IDENTITY, *(own or ()), *job.source.columns_in_settings())
    known = Known(tuple(dict.fromkeys(names)), () if own is not None else ("",))
    lines: list[str] = []
    is_only = len(job.models) == 1
    for label, entry in _entries(job):
        effect = entry.column_effect()
        lines += _problems(known, label, effect)
        if isinstance(entry, Predictor):
            known = known.after_model(effect, entry.name, is_only)
        else:
            known = known.after(effect, label)
    for setting, name in _published(job):
        lines += _problems(known, setting, ColumnEffect(reads=[name]))
    return list(dict.fromkeys(lines))


def _entries(job: Job) -> Iterator[tuple[str, PreprocessStep | Predictor]]:
    first = len(job.preparation) - len(job.preprocess)
    for place, step in enumerate(job.preparation):
        yield f"preprocess.{place - first} ({step.kind})" if place >= first else step.kind, step
    for place, entry in enumerate(job.inference):
        name = f", {entry.name}" if isinstance(entry, Predictor) and entry.name else ""
        yield f"inference.{place} ({entry.kind}{name})", entry


def _published(job: Job) -> Iterator[tuple[str, str]]:
    yield from ((f"checks.{setting}", name) for setting, name in job.checks.columns().items())
    yield from (("sink.keep_columns", name) for name in job.sink.keep_columns)


def _problems(known: Known, label: str, effect: ColumnEffect) -> Iterator[str]:
    folded = known.folded()
    lacks = [(name, known.lack(name)) for name in effect.reads]
    lacks += [(name, folded.lack(name.lower())) for name in effect.reads_in_sql]
    yield from (_line(known, label, name, why) for name, why in lacks if why is not None)
    yield from (f"{label}: {in_use(name)}" for name in effect.unused if name in known.names)


def _line(known: Known, label: str, name: str, why: str) -> str:
    near = "" if why else did_you_mean(name, known.names)
    because = f": {why}" if why else ""
    return f"{label}: expected a column {name!r}, found {known.shown()}{near}{because}"
