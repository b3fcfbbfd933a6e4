"""Servers for these tests: the embedded one, and a real one, which must give the same answers."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest
from tests.embedded.server.harness import Client, Served, with_node
from tests.real_cluster.api import until


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One server for all tests of a file; each test uses names of its own."""
    server = Served(tmp_path_factory.mktemp("served")).start()
    yield server
    server.stop()


@pytest.fixture
def client(served: Served) -> Client:
    return served.client


@pytest.fixture(params=["embedded", "real"])
def either(request: pytest.FixtureRequest) -> Client:
    """The embedded server, then a real API server: a test that asks for this holds for both."""
    if request.param == "embedded":
        served: Served = request.getfixturevalue("served")
        return with_node(served.client)
    plane = request.getfixturevalue("control_plane")
    client = Client(plane.kubeconfig)
    for space in ("default", "kube-public"):  # a controller puts it there, and no test should see that happen
        path = f"/api/v1/namespaces/{space}/configmaps/kube-root-ca.crt"
        until(partial(_there, client, path), what=path)
    return with_node(client)


def _there(client: Client, path: str) -> bool:
    return client.get(path).code == 200
