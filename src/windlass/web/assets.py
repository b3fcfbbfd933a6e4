"""The built files of the page, read once out of the package.

`make page` (and the wheel's build) writes them to `static/` beside this file; `web.page` serves them from memory.
"""

from __future__ import annotations

import mimetypes
from pathlib import Path

import msgspec

STATIC = Path(__file__).parent / "static"
FOREVER = "public, max-age=31536000, immutable"


class Asset(msgspec.Struct, frozen=True):
    content: bytes
    kind: str
    charset: str | None
    headers: dict[str, str]


def load_assets(folder: Path = STATIC) -> dict[str, Asset]:
    """Path → file; empty where the page was not built."""
    if not (folder / "index.html").is_file():
        return {}
    found = (path for path in sorted(folder.rglob("*")) if path.is_file() and not path.name.startswith("."))
    return {path.relative_to(folder).as_posix(): _asset(path, folder) for path in found}


def _asset(path: Path, folder: Path) -> Asset:
    kind = {".js": "text/javascript", ".svg": "image/svg+xml", ".css": "text/css", ".html": "text/html"}.get(
        path.suffix
    )
    kind = kind or mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    hashed = path.parent.name == "assets"  # the bundler puts a hash of the content into these names
    return Asset(
        content=path.read_bytes(),
        kind=kind,
        charset="utf-8" if kind.startswith("text/") else None,
        headers={"Cache-Control": FOREVER if hashed else "no-store"},
    )
