"""Find folders inside installed Python packages. A job file names such a folder `package:NAME/FOLDER`."""

import importlib.util
from pathlib import Path

from overnight.tasks.errors import JobError

PREFIX = "package:"


def folder_in_package(name: str, setting: str, stage: str) -> Path:
    """Return the path of a folder that may exist, from its `name`, the whole text `package:NAME/FOLDER`.

    Raise `JobError`, with this `setting` and `stage`, if the package is not installed.
    """
    package, _, below = name.removeprefix(PREFIX).partition("/")
    spec = importlib.util.find_spec(package) if package.isidentifier() else None
    if spec is None or not spec.submodule_search_locations:
        raise JobError(
            f"{setting}: expected an installed Python package named {package!r}, found none. Install it where the "
            "workers run; an import name has underscores where pip's has dashes.",
            stage,
        )
    folders = [Path(location) / below for location in spec.submodule_search_locations]
    return next(filter(Path.exists, folders), folders[0])
