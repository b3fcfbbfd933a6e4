"""The engine finds the same nodes feasible as kube-scheduler, and among these prefers the same.

kube-scheduler runs for real, with an extender that writes down which nodes passed its filters. Scenes are random; a
failure names the seed and the scene, and `WINDLASS_FEASIBILITY_SEED` brings the run back.
`WINDLASS_FEASIBILITY_PODS` says how many pods to compare: `make test-feasibility` takes thousands.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from random import Random

import pytest

from tests.cluster.comparison import Tally, compare, feature_gates, kube_scheduler, scores
from tests.cluster.api import until
from tests.cluster.control_plane import ControlPlane
from tests.cluster.engine_view import EngineView
from tests.cluster.extender import Extender
from tests.cluster.scene import Scene

SEED = int(os.environ.get("WINDLASS_FEASIBILITY_SEED") or time.time())
PODS = int(os.environ.get("WINDLASS_FEASIBILITY_PODS") or 500)
PER_SCENE = 100
ONE_BY_ONE = 25


@pytest.fixture
def plane(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """A control plane whose controllers stand still: nobody evicts, binds volumes or collects garbage."""
    control_plane.controllers.stop()
    control_plane.restart_apiserver(*feature_gates(control_plane))
    yield control_plane
    control_plane.restart_apiserver()


def scenes(plane: ControlPlane, tally: Tally, pods: int) -> Iterator[Scene]:
    """Random scenes until so many pods have been compared, each on an empty cluster."""
    while tally.pods < pods:
        number = tally.scenes
        scene = Scene(plane.api, Random(f"{SEED}/{number}"), f"s{number}", comparing=bool(feature_gates(plane)))
        scene.build()
        yield scene
        tally.scenes += 1
        plane.wipe()


def report(tally: Tally, capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        print(f"\ncompared with kube-scheduler, WINDLASS_FEASIBILITY_SEED={SEED}: {tally}")
    assert not tally.unlike, f"seed {SEED}:\n" + "\n\n".join(tally.unlike[:10])


def test_the_same_nodes_are_feasible(plane: ControlPlane, capsys: pytest.CaptureFixture[str]) -> None:
    tally = Tally()
    with Extender(lets_through=False) as extender, kube_scheduler(plane, extender):
        for scene in scenes(plane, tally, PODS):
            compare(scene, extender, scene.pods(PER_SCENE), tally)
    report(tally, capsys)


def test_the_chosen_node_is_among_its_best(plane: ControlPlane, capsys: pytest.CaptureFixture[str]) -> None:
    """Pods come one by one and kube-scheduler binds them; before each bind, both choose from the same nodes."""
    tally, api, judged = Tally(), plane.api, 0
    with Extender(lets_through=True) as extender, kube_scheduler(plane, extender, "-v=10") as scheduler:
        for scene in scenes(plane, tally, PODS // 5):
            for _ in range(ONE_BY_ONE):
                before = scene.documents()
                for key in scene.pods(1):
                    pod = until(lambda: decided(api.get(scene.path(key))), 30, f"{key} was decided on")
                    pod["spec"].pop("nodeName", None)
                    view = EngineView([*before, (pod, "Pod", "v1")])
                    tally.count(view, key)
                    theirs = scores(scheduler, key)
                    if theirs:
                        judged += 1
                        best = {name for name, score in theirs.items() if score == max(theirs.values())}
                        ours = view.chosen().get(key, "nowhere")
                        if ours not in best or set(theirs) != view.feasible(key):
                            tally.unlike.append(
                                f"scene {scene.tag}, {key}: we choose {ours} by {view.preferences(key)}, they score {theirs}"
                            )
                    if not extender.seen.get(key):
                        api.delete(scene.path(key), gracePeriodSeconds=0)
    report(tally, capsys)
    assert judged > tally.pods // 3


def decided(pod):
    return pod if any(c["type"] == "PodScheduled" for c in pod["status"].get("conditions", ())) else None
