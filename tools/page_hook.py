"""The build hook of the package: puts a fresh page into the wheel (and the source archive), or says why it can't.

Called by hatchling; `tools/build_page.py` does the work. An editable install needs no page: `make page` builds it.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class PageHook(BuildHookInterface):  # type: ignore[type-arg]
    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        root = Path(self.root)
        sys.path.insert(0, str(root / "tools"))
        try:
            from build_page import PageNotBuilt, build

            build(root)
        except PageNotBuilt as problem:
            raise SystemExit(f"error: {problem}") from None
        finally:
            sys.path.pop(0)
