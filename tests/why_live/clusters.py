"""The clusters that faults are injected into: `windlass up`, and a real control plane whose kubelets are played."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.embedded.cluster_up import up
from tests.real_cluster.api import Object
from tests.real_cluster.binaries import Binaries
from tests.real_cluster.control_plane import ControlPlane
from tests.real_cluster.fake_kubelet import FakeKubelet
from tests.real_cluster.recipes import CONTROL_PLANE
from tests.why_live.build import KUBELET_LABEL
from tests.why_live.play import Cluster


@contextmanager
def cluster_on(kind: str, folder: Path) -> Iterator[Cluster]:
    kubectl = shutil.which("kubectl") or "kubectl"
    if kind == "up":
        with up(folder) as running:
            yield Cluster(running.api, running.kubeconfig, kubectl)
        return
    binaries = Binaries(tell=print)
    binaries.build(CONTROL_PLANE)
    plane = ControlPlane(binaries, folder)
    plane.start()
    scheduler = plane.scheduler()
    try:
        scheduler.start()
        with PlayedKubelets(plane.api):
            yield Cluster(plane.api, plane.kubeconfig, str(binaries.path("kubectl")))
    finally:
        scheduler.stop()
        plane.stop()


class PlayedKubelets(FakeKubelet):
    """Bound pods run, but for those whose status the fault itself has written."""

    def _serve(self, pod: Object) -> None:
        is_injected = KUBELET_LABEL in pod["metadata"].get("labels", {})
        if not is_injected or "deletionTimestamp" in pod["metadata"]:
            super()._serve(pod)
