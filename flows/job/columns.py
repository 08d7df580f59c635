"""Follow the columns of a job from the source to the sink by the settings alone, before any input is read.

A source of files has known columns. The columns of a table are known only to the run: there, a name is refused if an
earlier step removed the column, or if it resembles one that an earlier model makes, with its prefix.
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
from overnight.tasks.rows.expressions.parser import Expression


@dataclass(frozen=True)
class Known:
    names: tuple[str, ...]  # columns that exist
    open_prefixes: tuple[str, ...] = ()  # a name that begins with one of these may exist, too; an empty one allows any
    removed: dict[str, str] = field(default_factory=dict)  # a column and the entry of the job file that removed it
    made: dict[str, tuple[str, ...]] = field(default_factory=dict)  # a model's prefix and its columns without it
    unused_prefix: str = ""  # the prefix that a job's only model would have beside others
    media: frozenset[str] = frozenset()  # columns with images, sounds or the bytes of files

    def lack(self, name: str) -> str | None:
        """Return why no row has a column `name`, as a text that may be empty. Return None if a row may have it."""
        if name in self.names:
            return None
        if name in self.removed:
            return f"{self.removed[name]} removes it"
        if not name.startswith(self.open_prefixes):
            bare = name.removeprefix(self.unused_prefix)
            return f"a job with one model has no prefixes, it is {bare}" if bare in self.names else ""
        for prefix, columns in self.made.items():
            bare = name.removeprefix(prefix)
            if bare != name and (near := get_close_matches(bare, columns, 1)):
                return f"the model {prefix.removesuffix('_')} makes {prefix}{near[0]}"
        return None

    def folded(self) -> "Known":
        """Return the columns with all names in lower case, because SQL ignores the case of names."""
        return Known(
            tuple(map(str.lower, self.names)),
            tuple(map(str.lower, self.open_prefixes)),
            {name.lower(): by for name, by in self.removed.items()},
            {prefix.lower(): columns for prefix, columns in self.made.items()},
            self.unused_prefix.lower(),
        )

    def after(self, effect: ColumnEffect, label: str) -> "Known":
        """Return the columns that are known after a step with this effect. `label` is its entry in the job file."""
        keeps = self.names if effect.keeps is None else (*IDENTITY, *effect.keeps)
        names = tuple(dict.fromkeys([*(name for name in keeps if name not in effect.removes), *effect.makes]))
        media = (self.media - {*effect.makes, *effect.removes}) | {*effect.media}
        if effect.makes_others:  # any column may exist
            return replace(self, names=names, open_prefixes=("",), removed={}, media=frozenset())
        losses, open_prefixes = {*effect.removes}, self.open_prefixes
        if effect.keeps is not None:
            losses, open_prefixes = losses | {*self.names}, ()
        removals = self.removed | dict.fromkeys(losses, label)
        removals = {name: by for name, by in removals.items() if name not in names}
        return replace(self, names=names, open_prefixes=open_prefixes, removed=removals, media=media)

    def after_model(self, effect: ColumnEffect, name: str | None, is_only: bool) -> "Known":
        """Return the columns after a model. Their names begin with the model's `name`, unless it is the job's only."""
        own_prefix = f"{name}_" if name else ""
        prefix = "" if is_only else f"{name}_"
        makes = tuple(f"{prefix}{column}" for column in effect.makes)
        columns = self.after(replace(effect, makes=makes, makes_others=False), "")
        columns = replace(columns, unused_prefix=own_prefix if is_only else "")
        if effect.makes_others:
            removals = {column: by for column, by in columns.removed.items() if not column.startswith(prefix)}
            return replace(columns, open_prefixes=(*columns.open_prefixes, prefix), removed=removals)
        return replace(columns, made=columns.made | {prefix: tuple(effect.makes)}) if prefix else columns

    def shown(self) -> str:
        more = ", and others that only a run shows" if self.open_prefixes else ""
        return f"{', '.join(self.names)}{more}"


def column_problems(job: Job, found: Sequence[str] | None = None) -> list[str]:
    """Return a message for each column that the job names although no row can have it, or that has a taken name."""
    own = job.source.column_names_made() if found is None else found
    names = (*IDENTITY, *(own or ()), *job.source.columns_in_settings())
    media = frozenset(job.source.media_columns())
    columns = Known(tuple(dict.fromkeys(names)), () if own is not None else ("",), media=media)
    lines: list[str] = []
    if job.shuffle.kind == "sorted":
        lines += _problems(columns, "shuffle.by", ColumnEffect(reads_in_sql=Expression(job.shuffle.by).required))
    for label, entry in _entries(job):
        effect = entry.column_effect()
        lines += _problems(columns, label, effect)
        if isinstance(entry, Predictor):
            columns = columns.after_model(effect, entry.name, len(job.models) == 1)
        else:
            columns = columns.after(effect, label)
    for setting, name in job.checks.columns().items():
        lines += _problems(columns, f"checks.{setting}", ColumnEffect(reads=[name]))
    for name in job.sink.keep_columns:
        lines += _problems(columns, "sink.keep_columns", ColumnEffect(reads=[name]))
    return list(dict.fromkeys(lines))


def _entries(job: Job) -> Iterator[tuple[str, PreprocessStep | Predictor]]:
    first = len(job.preprocess) - len(job.preparation)  # below 0 for a step that the job file need not name
    for number, step in enumerate(job.preparation, first):
        yield f"preprocess.{number} ({step.kind})" if number >= 0 else step.kind, step
    for number, entry in enumerate(job.inference):
        name = f", {entry.name}" if isinstance(entry, Predictor) and entry.name else ""
        yield f"inference.{number} ({entry.kind}{name})", entry


def _problems(known: Known, label: str, effect: ColumnEffect) -> Iterator[str]:
    lower_case = known.folded()
    lacks = [(name, known.lack(name)) for name in effect.reads]
    lacks += [(name, lower_case.lack(name.lower())) for name in effect.reads_in_sql]
    for name, reason in lacks:
        if reason is not None:
            advice = f": {reason}" if reason else did_you_mean(name, known.names)
            yield f"{label}: expected a column {name!r}, found {known.shown()}{advice}"
    for name in effect.in_text:
        if name in known.media:
            yield (
                f"{label}: expected columns of text or numbers in a prompt, found {name!r}, which has images, "
                f"sounds or files. Write a part for it, such as {{image: {name}}}, for a kind of model that takes it"
            )
    for name in effect.unused:
        if name in known.names:
            yield f"{label}: {in_use(name)}"
