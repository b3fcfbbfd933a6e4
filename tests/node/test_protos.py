"""The generated messages are what their `.proto` files say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_making_them_again_changes_nothing(tmp_path: Path) -> None:
    """In a process of its own: the compiler and gRPC don't get on in one."""
    subprocess.run([sys.executable, ROOT / "tools/generate_protos.py", tmp_path], check=True)
    made = sorted(tmp_path.rglob("*_pb2.py*"))
    assert made
    for module in made:
        checked_in = ROOT / "src" / module.relative_to(tmp_path)
        assert module.read_text() == checked_in.read_text(), "run python tools/generate_protos.py"
