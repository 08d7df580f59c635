"""The metrics that docs/operations/metrics.md lists, which are those that `overnight metrics` serves."""

import re
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs/operations/metrics.md"


def metric_names() -> set[str]:
    return set(re.findall(r"^\| `(overnight_[a-z_]+)` \|", PAGE.read_text(), re.MULTILINE))
