"""Fixtures for tests that run the same steps on an embedded and on a real cluster."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.embedded.controllers.stories import two_clusters
from tests.embedded.server.harness import Client
from tests.real_cluster.control_plane import ControlPlane


@pytest.fixture
def both(control_plane: ControlPlane, tmp_path: Path) -> Iterator[tuple[Client, Client]]:
    """The embedded cluster and the real one."""
    with two_clusters(control_plane, tmp_path) as clients:
        yield clients
