"""Find folders inside installed Python packages. A job file names such a folder `package:NAME/FOLDER`."""

import importlib.util
from pathlib import Path

from overnight.tasks.errors import JobError

PREFIX = "package:"


def folder_in_package(name: str, setting: str, stage: str) -> Path:
    """Return the path of FOLDER inside the installed Python package NAME, even if there is no such folder.

    `name` is the whole text `package:NAME/FOLDER`. Raise `JobError`, with this stage, if the package is not installed.
    `setting` is the setting that the message names.
    """
    package, _, rest = name.removeprefix(PREFIX).partition("/")
    spec = importlib.util.find_spec(package) if package.isidentifier() else None
    if spec is None or not spec.submodule_search_locations:
        raise JobError(
            f"{setting}: expected an installed Python package named {package!r}, found none. Install it where the "
            "workers run; an import name has underscores where pip's has dashes.",
            stage,
        )
    places = [Path(place) / rest for place in spec.submodule_search_locations]
    return next((place for place in places if place.exists()), places[0])
