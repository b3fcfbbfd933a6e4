"""The generated messages are what their `.proto` files say."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_making_them_again_changes_nothing(tmp_path: Path) -> None:
    spec = importlib.util.spec_from_file_location("generate_protos", ROOT / "tools/generate_protos.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    for made in module.generate(tmp_path):
        checked_in = ROOT / "src" / made.relative_to(tmp_path)
        assert made.read_text() == checked_in.read_text(), "run python tools/generate_protos.py"
