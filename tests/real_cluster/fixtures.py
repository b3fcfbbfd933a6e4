"""The cluster fixtures, for every test that wants a real control plane. Loaded by `tests/conftest.py`.

`control_plane` is the machine room (one per test process, wiped before each test that uses `cluster`); `cluster` is
what scenario tests ask for: a kubeconfig and a client, and nothing that says which server is behind it.
Where the programs can't be built or started the tests are skipped with one loud line; with CI=true they fail.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

import pytest
from tests.embedded.bare import Bare
from tests.real_cluster.api import Api
from tests.real_cluster.binaries import Binaries, NotAvailable
from tests.real_cluster.control_plane import ControlPlane
from tests.real_cluster.fake_kubelet import FakeKubelet, Refuse
from tests.real_cluster.node import RealNode, real_node_on
from tests.real_cluster.recipes import CONTROL_PLANE, NODE
from tests.real_cluster.service import StartFailed

SERVERS = ("real", "embedded")
"""The servers that scenario tests run on."""


class Cluster(Protocol):
    """What a scenario test may use, on every server."""

    kubeconfig: Path
    api: Api


def unavailable(reason: str) -> None:
    """End a test that has no cluster: loudly, and with CI=true as a failure."""
    line = f"NO REAL CLUSTER: {reason}"
    if os.environ.get("CI") == "true":
        pytest.fail(line, pytrace=False)
    warnings.warn(pytest.PytestWarning(line), stacklevel=2)
    pytest.skip(line)


@pytest.fixture(scope="session")
def binaries(pytestconfig: pytest.Config) -> Binaries:
    """The cluster's programs; building one shows its progress even where pytest captures output."""
    capture = pytestconfig.pluginmanager.getplugin("capturemanager")

    def tell(line: str) -> None:
        with capture.global_and_fixture_disabled():
            os.write(2, f"{line}\n".encode())

    return Binaries(tell=tell)


@pytest.fixture(scope="session")
def _room(binaries: Binaries, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane | str]:
    """The control plane, or why there is none: that is found out once, not once per test."""
    try:
        binaries.build(CONTROL_PLANE)
        try:
            plane = started(binaries, tmp_path_factory.mktemp("cluster"))
        except StartFailed:
            # A port that was free when it was chosen may have been taken since: once more, with others.
            plane = started(binaries, tmp_path_factory.mktemp("cluster"))
    except (NotAvailable, StartFailed) as problem:
        yield str(problem)
        return
    yield plane
    plane.stop()


def started(binaries: Binaries, folder: Path) -> ControlPlane:
    plane = ControlPlane(binaries, folder)
    try:
        plane.start()
    except StartFailed:
        plane.stop()
        raise
    return plane


@pytest.fixture
def control_plane(_room: ControlPlane | str) -> ControlPlane:
    """A running real control plane without anything of an earlier test; see `ControlPlane` for what can be broken."""
    if isinstance(_room, str):
        unavailable(_room)
    assert isinstance(_room, ControlPlane)
    _room.restore()
    return _room


@pytest.fixture(params=SERVERS)
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster for a scenario, once for every server there is."""
    if request.param == "real":
        yield request.getfixturevalue("control_plane")
        return
    bare = Bare(tmp_path_factory.mktemp("embedded"))
    yield bare
    bare.stop()


@pytest.fixture
def kubelets(cluster: Cluster) -> Iterator[Callable[..., FakeKubelet]]:
    """Starts the loop that plays kubelet: `kubelets()`, or `kubelets(refuse=…)` for nodes that say no."""
    started: list[FakeKubelet] = []

    def start(refuse: Refuse = lambda pod: "") -> FakeKubelet:
        started.append(FakeKubelet(cluster.api, refuse).__enter__())
        return started[-1]

    yield start
    for each in started:
        each.__exit__()
        assert not each.problems, each.problems


@pytest.fixture
def real_node(control_plane: ControlPlane) -> Iterator[RealNode]:
    """A real kubelet with containerd and runc, joined to `control_plane`. Starting it takes some seconds."""
    yield from _started_node(control_plane, installed=False)


@pytest.fixture
def installed_node(control_plane: ControlPlane) -> Iterator[RealNode]:
    """The same with its files where a user's node has them, for what finds them by itself."""
    yield from _started_node(control_plane, installed=True)


def _started_node(control_plane: ControlPlane, *, installed: bool) -> Iterator[RealNode]:
    try:
        control_plane.binaries.build(NODE)
        with real_node_on(control_plane, installed=installed) as node:
            yield node
    except (NotAvailable, StartFailed) as problem:
        unavailable(str(problem))
