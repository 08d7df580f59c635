"""The site of all jobs below a folder: an index, a page for each job, and links to the reports of their runs.

Everything comes from receipts. Only the pages of jobs and the index are written. Reports stay where they are if the
site is below the folder; otherwise new ones are copied beside it, because links between two places break.
"""

import os
import posixpath
import re
from collections.abc import Iterator, Sequence
from urllib.parse import quote

from overnight.flows.history.history import History, read_history
from overnight.flows.history.lines import directories_of
from overnight.flows.history.pages import index_page, job_page, report_path, slug
from overnight.tasks.config.masking import masked
from overnight.tasks.errors import OvernightError
from overnight.tasks.storage.filesystems import is_local
from overnight.tasks.storage.location import Location

FOLDER = "_overnight_site"  # by default, in the folder of the jobs
STATE = "_overnight"
UNSAFE = re.compile(r"[^\w.=-]")


def find_states(folder: Location) -> list[Location]:
    """Return the states of jobs below a folder, which may be one itself, sorted by path. Links are not followed."""
    filesystem, root = folder.open_filesystem()
    root = root.rstrip("/")
    if not filesystem.isdir(root):
        raise OvernightError(f"{folder}: expected a folder with the results of jobs, found none. Name it.")
    walk = filesystem.walk(root)
    if is_local(filesystem):
        folder, walk = Location(root), os.walk(root)  # in full: the names of pages depend on it
    states = []
    for path, directories, _ in walk:
        below = path.rstrip("/")[len(root) :].strip("/")
        location = folder / below if below else folder
        if posixpath.basename(path.rstrip("/")) == STATE or _is_state(location, directories):
            states.append(location)
            directories[:] = []
        else:  # partitions of data have no jobs in them
            directories[:] = sorted(filter(_may_hold_jobs, directories))
    return states


def _may_hold_jobs(name: str) -> bool:
    return name == STATE or (name[0] not in "._" and "=" not in name)


def _is_state(place: Location, directories: Sequence[str]) -> bool:
    """Return True for a folder that a job names as its `state`: its newest partition has a ledger."""
    names = list(directories_of(directories).values())
    if not names or STATE in directories:
        return False
    return any((place / names[-1] / file).exists() for file in ("receipt.json", "failure.json"))


def read_site(states: Sequence[Location], folder: Location | None = None) -> list[History]:
    """Return the history of each state with a run. One that cannot be read has a problem instead of lines.

    With `folder`, which is above the states, pages show paths below it, and no path of the machine.
    """
    histories = []
    for state in states:
        try:
            history = read_history(state)
        except OvernightError as error:
            history = _unread(state, error.message)
        except (AttributeError, KeyError, TypeError, ValueError) as error:  # a receipt that Overnight did not write
            history = _unread(state, f"expected records of Overnight, found others: {type(error).__name__}: {error}")
        if folder:
            history.place = _place(state, folder)
            history.problem = history.problem.replace(str(state), history.place)
        if history.lines or history.problem:
            histories.append(history)
    return sorted(histories, key=lambda history: history.job)


def _unread(state: Location, problem: str) -> History:
    return History(state.parent.name, state, [], {}, masked(problem), str(state))


def _place(state: Location, folder: Location) -> str:
    (_, path), (_, root) = state.open_filesystem(), folder.open_filesystem()
    place = posixpath.relpath(path, root)
    return posixpath.basename(path) if place == "." else place


def write_site(folder: Location, output: Location | None = None) -> tuple[Location, list[History]]:
    """Write the site of the jobs below a folder, and return where it is, with the histories that it shows."""
    histories = read_site(find_states(folder), folder)
    site = output or folder / FOLDER
    site.make_private()  # error messages hold texts of rows
    is_below = _is_below(site, folder)
    links: dict[str, str | None] = {}
    for history in histories:
        name = slug(history)
        links[name] = _relative_link(site, history.state) if is_below else quote(name)
        if not is_below:
            _copy_reports(history, site / name)
    for name, page in pages(histories, links):
        (site / name).write_bytes(page.encode(errors="replace"))
    return site, histories


def pages(histories: Sequence[History], links: dict[str, str | None]) -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each page. `links` leads to the state of each job, by its slug."""
    for history in histories:
        if not history.problem:
            name = slug(history)
            yield f"{name}.html", job_page(history, links[name], "index.html")
    yield "index.html", index_page(histories, links)


def _copy_reports(history: History, folder: Location) -> None:
    """Copy the reports that are not there. The name of a copy has the run, because a page changes with each run."""
    present = {file.path for file in folder.files()} if folder.exists() else set()
    for line in history.lines:
        path = report_path(history, line)
        if not path:
            continue
        record = line.entry.failure if line.entry.status == "failed" and line.entry.failure else line.receipt
        attempt = record.get("attempt", record.get("generation", "run"))
        if record is line.receipt and line.facts.get("attempt", attempt) != attempt:
            line.report = ""  # a run has just published, and its page is not there yet
            continue
        line.report = UNSAFE.sub("-", f"{attempt}.html")
        copy = report_path(history, line)
        if copy not in present:
            (folder / copy).write_bytes((history.state / path).read_bytes())


def _is_below(site: Location, folder: Location) -> bool:
    (store, path), (of_folder, root) = site.open_filesystem(), folder.open_filesystem()
    return bool(store == of_folder and f"{path.rstrip('/')}/".startswith(f"{root.rstrip('/')}/"))


def _relative_link(site: Location, state: Location) -> str:
    """Return the relative link from a folder to another one in the same store."""
    (_, start), (_, path) = site.open_filesystem(), state.open_filesystem()
    return quote(posixpath.relpath(path, start))
