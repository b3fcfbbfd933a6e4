"""Checks every link of the documentation that leads into the project: `make docs` and the tests run it.

    python tools/check_links.py

Prints one line for each link to a file, or to a heading in it, that does not exist; exit 1 if there is any.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"!?\[[^\]]*\]\(([^()\s]+)\)")
HEADING = re.compile(r"^#+\s+(.*)$", re.MULTILINE)


def pages() -> list[Path]:
    return sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "src").rglob("*.md")])


def broken_links(page: Path) -> Iterator[str]:
    for target in LINK.findall(FENCE.sub("", page.read_text(encoding="utf-8"))):
        if "://" in target or target.startswith("mailto:"):
            continue
        name, _, anchor = target.partition("#")
        file = (page.parent / name) if name else page
        if not file.exists():
            yield f"{page.relative_to(ROOT)}: {target}: there is no such file"
        elif anchor and anchor not in anchors(file):
            yield f"{page.relative_to(ROOT)}: {target}: there is no such heading"


def anchors(page: Path) -> set[str]:
    """The names that a heading is reached by: lower case, spaces to hyphens, other signs gone."""
    headings = HEADING.findall(FENCE.sub("", page.read_text(encoding="utf-8")))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def main() -> int:
    broken = [line for page in pages() for line in broken_links(page)]
    print("\n".join(broken) or f"{len(pages())} pages, every link leads somewhere")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
