"""The page's own unit tests (`web/tests`), run by Node: what its scripts decide without a browser."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[3]


def build_page() -> ModuleType:
    spec = importlib.util.spec_from_file_location("build_page", ROOT / "tools" / "build_page.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_the_scripts_decide_right() -> None:
    answer = build_page().run_unit_tests(ROOT)
    assert isinstance(answer, subprocess.CompletedProcess)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert "# fail 0" in answer.stdout
    assert "# pass 0" not in answer.stdout
