"""The same kubectl session on the embedded cluster and on a real one: same commands, same expectations.

What is tried stands in `session/*.txt`, one file a chapter. On the real control plane a real kubelet runs the pods and
kube-scheduler places them; on the embedded one everything is ours. A chapter that fails says each step that did.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.embedded.cluster_up import Up
from tests.embedded.kubectl.servers import Place, environment, kubectl_at_hand
from tests.embedded.kubectl.transcript import SESSIONS, execute, read, run
from tests.real_cluster.binaries import Binaries
from tests.real_cluster.control_plane import ControlPlane
from tests.real_cluster.images import BUSYBOX
from tests.real_cluster.node import RealNode

CHAPTERS = sorted(path.stem for path in SESSIONS.glob("*.txt"))


def play(place: Place, chapter: str, folder: Path) -> list[str]:
    """The steps that went wrong."""
    folder.mkdir()
    known = environment(place, chapter, folder)
    made = execute(f"kubectl create namespace {known['NS']}", folder, known)
    assert made.code == 0, made.output
    problems = [run(step, folder, known) for step in read(SESSIONS / f"{chapter}.txt")]
    execute(f"kubectl delete namespace {known['NS']} --wait=false", folder, known)
    return [problem for problem in problems if problem]


def test_on_a_real_cluster(control_plane: ControlPlane, real_node: RealNode, tmp_path: Path) -> None:
    """All chapters in one test: the real node takes seconds to start, and only one can be on a machine."""
    scheduler = control_plane.scheduler()
    scheduler.start()
    kubectl = kubectl_at_hand(control_plane.binaries.path("kubectl"))
    place = Place(kubectl, control_plane.kubeconfig, real_node.name, BUSYBOX)
    try:
        found = {chapter: play(place, chapter, tmp_path / chapter) for chapter in CHAPTERS}
    finally:
        scheduler.stop()
    told = [f"{chapter}\n{problem}" for chapter, problems in found.items() for problem in problems]
    assert not told, "\n\n".join(told)


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_on_windlass_up(windlass_up: Up, binaries: Binaries, chapter: str, tmp_path: Path) -> None:
    place = Place(kubectl_at_hand(binaries.path("kubectl")), windlass_up.kubeconfig, "cpu-0", BUSYBOX)
    problems = play(place, chapter, tmp_path / chapter)
    assert not problems, "\n\n".join(problems)
