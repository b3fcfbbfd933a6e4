"""Five of the faults of `make why-live` on `windlass up`, and a healthy neighbour: named at once, mended by kubectl."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.embedded.cluster_up import up
from tests.embedded.kubectl.servers import kubectl_at_hand
from tests.real_cluster.binaries import Binaries
from tests.why_live.build import Fault, deployment, node, spec
from tests.why_live.faults import FAULTS
from tests.why_live.play import Cluster, play_batch

FEW = ("taint", "taint-pod", "quota", "unhealthy", "image")
HEALTHY = Fault("healthy", lambda n: [node(n), deployment(n, spec(n))], ["NONE"])


def test_why_names_injected_faults_and_its_patches_work(tmp_path: Path, binaries: Binaries) -> None:
    faults = [fault for fault in FAULTS if fault.name in FEW]
    with up(tmp_path) as running:
        kubectl = str(kubectl_at_hand(binaries.path("kubectl")))
        cluster = Cluster(running.api, running.kubeconfig, kubectl)
        verdicts = play_batch(cluster, [*faults, HEALTHY], tmp_path, lambda: None)
    assert [verdict.problem for verdict in verdicts if verdict.problem] == []


def test_there_are_forty_faults_with_names_of_their_own() -> None:
    names = [fault.name for fault in FAULTS]
    assert len(set(names)) == len(names) >= 40


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_everything_of_a_fault_carries_its_name(fault: Fault) -> None:
    """Faults are injected ten at a time, and must not be each other's."""
    for tree in fault.make("mine"):
        metadata = tree["metadata"]
        assert metadata.get("namespace", "") in ("mine", "default", "kube-node-lease", "")
        assert metadata.get("namespace") == "mine" or metadata["name"].startswith("mine"), tree["kind"]
