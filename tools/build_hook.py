"""The build hook of the package: puts a fresh page and compiled kernels into the wheel, or says why it can't.

Called by hatchling; `tools/build_page.py` and `tools/kernel_library` do the work. An editable install needs neither:
`make page` and `make env` build them. A wheel without compiled kernels works, and decides more slowly.
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class BuildHook(BuildHookInterface):  # type: ignore[type-arg]
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
        if find_spec("numba") is not None:
            path = os.pathsep.join((str(root), str(root / "src")))
            command = [sys.executable, "-m", "tools.kernel_library"]
            subprocess.run(command, cwd=root, env=os.environ | {"PYTHONPATH": path}, check=True)
