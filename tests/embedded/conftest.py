"""Fixtures for tests that want the embedded cluster as its users have it: `windlass up`, a process of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.embedded.cluster_up import Up, up


@pytest.fixture(scope="module")
def windlass_up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """`windlass up` with its default fleet, one for all tests of a file; its scheduler has begun."""
    with up(tmp_path_factory.mktemp("up")) as cluster:
        yield cluster
