"""The engine finds the same nodes feasible as kube-scheduler, and among these prefers the same.

kube-scheduler runs for real, with an extender that writes down which nodes passed its filters. Scenes are random; a
failure names the seed and the scene, and `WINDLASS_FEASIBILITY_SEED` brings the run back.
`WINDLASS_FEASIBILITY_PODS` says how many pods to compare: `make test-feasibility` takes thousands.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import partial
from random import Random

import pytest
from tests.real_cluster.api import Object, until
from tests.real_cluster.comparison import Scores, Tally, compare, feature_gates, kube_scheduler
from tests.real_cluster.control_plane import ControlPlane
from tests.real_cluster.engine_view import EngineView
from tests.real_cluster.extender import Extender
from tests.real_cluster.scene import Scene
from tests.real_cluster.storage_draws import BOUND, CLAIMS

SEED = int(os.environ.get("WINDLASS_FEASIBILITY_SEED") or 1)
"""Committed, so that continuous integration draws the same every time; `make test-feasibility` draws a new one."""
PODS = int(os.environ.get("WINDLASS_FEASIBILITY_PODS") or 500)
PER_SCENE = 100
ONE_BY_ONE = 25


@pytest.fixture
def plane(control_plane: ControlPlane) -> ControlPlane:
    """A control plane whose controllers stand still: nobody evicts, binds volumes or collects garbage."""
    control_plane.controllers.stop()
    control_plane.restart_apiserver(*feature_gates(control_plane))
    return control_plane


def scenes(plane: ControlPlane, tally: Tally, pods: int, claims: Sequence[str] = CLAIMS) -> Iterator[Scene]:
    """Random scenes until so many pods have been compared, each on an empty cluster."""
    while tally.pods < pods:
        number = tally.scenes
        random = Random(f"{SEED}/{number}")
        comparing = bool(feature_gates(plane))
        scene = Scene(plane.api, random, f"s{number}", comparing=comparing, claims=claims)
        scene.build()
        yield scene
        tally.scenes += 1
        plane.wipe()


def report(tally: Tally, capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        print(f"\ncompared with kube-scheduler, WINDLASS_FEASIBILITY_SEED={SEED}: {tally}")
    assert not tally.unlike, f"seed {SEED}:\n" + "\n\n".join(tally.unlike[:10])
    assert tally.fits["somewhere"] > tally.pods // 5, "the draws have become too easy, or too hard"


def test_the_same_nodes_are_feasible(plane: ControlPlane, capsys: pytest.CaptureFixture[str]) -> None:
    tally = Tally()
    with Extender(lets_through=False) as extender, kube_scheduler(plane, extender):
        for scene in scenes(plane, tally, PODS):
            compare(scene, extender, scene.pods(PER_SCENE), tally)
    report(tally, capsys)


def test_the_chosen_node_is_among_its_best(plane: ControlPlane, capsys: pytest.CaptureFixture[str]) -> None:
    """Pods come one by one and kube-scheduler binds them; both choose from the same cluster, each time."""
    tally = Tally()
    with Extender(lets_through=True) as extender, kube_scheduler(plane, extender, "-v=10") as scheduler:
        scores = Scores(scheduler)
        # Nobody is there to make volumes: pods whose claims wait for them would never be bound.
        for scene in scenes(plane, tally, max(150, PODS // 10), BOUND):
            for _ in range(ONE_BY_ONE):
                choose_both(scene, extender, scores, tally)
    report(tally, capsys)
    assert tally.judged > tally.pods // 10, "too few pods had a choice to say anything"


def choose_both(scene: Scene, extender: Extender, scores: Scores, tally: Tally) -> None:
    # Only this pod waits: a pod that kube-scheduler tries again later would be decided on first, and take a place.
    before = [(raw, kind, v) for raw, kind, v in scene.documents() if kind != "Pod" or raw["spec"].get("nodeName")]
    for key in scene.pods(1):
        pod = until(partial(decided, scene, key), 30, f"{key} was decided on")
        pod["spec"].pop("nodeName", None)
        view = EngineView([*before, (pod, "Pod", "v1")])
        tally.count(view, key)
        seen, theirs = extender.seen.get(key, frozenset()), scores.of(key)
        if theirs:
            tally.judged += 1
        best = {name for name in seen if theirs.get(name) == max(theirs.values(), default=None)}
        ours = view.chosen().get(key)
        if view.feasible(key) != seen or (ours not in best if best else ours is not None):
            tally.unlike.append(
                f"scene {scene.tag}, {key}: we choose {ours} by {view.preferences(key)}, "
                f"kube-scheduler scores {theirs} of {sorted(seen)}"
            )
        if not seen:
            scene.api.delete(scene.path(key), gracePeriodSeconds=0)


def decided(scene: Scene, key: str) -> Object | None:
    """The pod, once kube-scheduler has bound it or given up."""
    pod = scene.api.get(scene.path(key))
    conditions = pod["status"].get("conditions", ())
    return pod if any(each["type"] == "PodScheduled" for each in conditions) else None
