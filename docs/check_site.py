"""Check that the site's files for programs are complete: llms.txt lists each page, llms-full.txt has each page's text.

    python docs/check_site.py build/docs

Expected: every page that Sphinx built. A page that is missing, or a line of one, ends this with status 1.
"""

import sys
from pathlib import Path

FENCE = "```"


def main(site: Path) -> None:
    listed = (site / "llms.txt").read_text(encoding="utf-8")
    full = set((site / "llms-full.txt").read_text(encoding="utf-8").splitlines())
    pages = sorted((site / "_sources").rglob("*.md.txt"))
    missing = [f"{page} is not in llms.txt" for page in pages if f"({page.relative_to(site).as_posix()})" not in listed]
    for page in pages:
        lost = [line for line in page.read_text(encoding="utf-8").splitlines() if line not in full]
        # The site writes another path for a picture.
        lost = [line for line in lost if not line.startswith(f"{FENCE}{{image}}")]
        missing += [f"{page}: not in llms-full.txt: {line}" for line in lost[:1]]
    if missing or not pages:
        sys.exit("\n".join(missing) or f"expected pages below {site}, found none: run `make docs`")
    print(f"The site in {site} has {len(pages)} pages; llms.txt and llms-full.txt have all of them")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
