"""The shipped images, built once per test process by the project's own script."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def scheduler_image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_image("scheduler", tmp_path_factory.mktemp("image"))


@pytest.fixture(scope="session")
def node_image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_image("node", tmp_path_factory.mktemp("image"))


def build_image(role: str, folder: Path) -> Path:
    """The archive of a role; what it is made from is kept in the user's cache, so that only what changed is made
    again."""
    archive = folder / f"{role}.tar"
    command = [sys.executable, str(ROOT / "deploy" / "image"), f"--role={role}", "-o", str(archive)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return archive
