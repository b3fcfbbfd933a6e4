"""kube-scheduler beside the engine: started with an extender that listens, asked about pods, and the answers kept.

Used by `test_feasibility`. A `Tally` says at the end how much was compared, and which rules had a say.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

from tests.real_cluster.api import Api, until
from tests.real_cluster.control_plane import ControlPlane
from tests.real_cluster.engine_view import EngineView
from tests.real_cluster.extender import Extender
from tests.real_cluster.scene import Scene
from tests.real_cluster.service import Service

NOT_PREFERENCES = ("NodeResourcesFit", "NodeResourcesBalancedAllocation", "ImageLocality")
"""Scores of kube-scheduler that say nothing about what pods want."""
TRIES = 4
_SCORE = re.compile(
    r'"Calculated node\'s final score for pod".* pod="(?P<pod>[^"]+)" node="(?P<node>[^"]+)" score=(?P<score>-?\d+)'
)


def feature_gates(plane: ControlPlane) -> list[str]:
    """Flags that make the server and kube-scheduler know what the draws use, where the release has it."""
    minor = int(plane.binaries.version.split(".")[1])
    if minor < 35:
        return []
    # Without batching every pod is looked at on its own, and the extender is asked for each.
    return ["--feature-gates=TaintTolerationComparisonOperators=true,OpportunisticBatching=false"]


@contextmanager
def kube_scheduler(plane: ControlPlane, extender: Extender, *flags: str) -> Iterator[Service]:
    """kube-scheduler that looks at all nodes, preempts nobody and scores by preferences alone."""
    plugins = {
        "postFilter": {"disabled": [{"name": "*"}]},
        "score": {"disabled": [{"name": name} for name in NOT_PREFERENCES]},
    }
    configuration = {
        "percentageOfNodesToScore": 100,
        "extenders": [extender.configuration],
        "profiles": [{"schedulerName": "default-scheduler", "plugins": plugins}],
    }
    service = plane.scheduler(configuration)
    service.start(*feature_gates(plane), *flags)
    try:
        yield service
    finally:
        service.stop()


@dataclass
class Tally:
    """How much was compared."""

    pods: int = 0
    scenes: int = 0
    asked_again: int = 0
    judged: int = 0
    """Pods that had several nodes to choose from."""
    fits: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    unlike: list[str] = field(default_factory=list)

    def count(self, view: EngineView, key: str) -> None:
        self.pods += 1
        reasons = view.reasons(key)
        free = sum(not why for why in reasons.values())
        self.fits["nowhere" if not free else "everywhere" if free == len(reasons) else "somewhere"] += 1
        self.reasons.update({(view.held(key) and "held") or word for why in reasons.values() for word in why})

    def __str__(self) -> str:
        fits = ", ".join(f"{count} fit {where}" for where, count in sorted(self.fits.items()))
        reasons = ", ".join(f"{name} {count}" for name, count in self.reasons.most_common())
        return (
            f"{self.pods} pods in {self.scenes} scenes, {len(self.unlike)} unlike ({fits}; "
            f"{self.asked_again} asked again)\npods refused somewhere, by reason: {reasons}"
        )


def compare(scene: Scene, extender: Extender, keys: Sequence[str], tally: Tally) -> None:
    """Ask both about these pods. kube-scheduler may have looked before its caches had all of the scene, since each
    kind comes by a watch of its own; pods with a difference are made again and looked at again."""
    until(partial(looked_at, scene.api, keys), 60, "kube-scheduler has looked at all pods")
    view = EngineView(scene.documents())
    for key in keys:
        tally.count(view, key)
    left = unlike(view, extender, keys)
    for _ in range(TRIES):
        if not left:
            return
        tally.asked_again += len(left)
        scene.again(left)
        until(partial(looked_at, scene.api, left), 60, "kube-scheduler has looked at the pods again")
        view = EngineView(scene.documents())
        left = unlike(view, extender, left)
    tally.unlike += [explained(scene, view, extender, key) for key in left]


def unlike(view: EngineView, extender: Extender, keys: Sequence[str]) -> list[str]:
    return [key for key in keys if view.feasible(key) != extender.seen.get(key, frozenset())]


def explained(scene: Scene, view: EngineView, extender: Extender, key: str) -> str:
    reasons, theirs = view.reasons(key), extender.seen.get(key, frozenset())
    ours = {name for name, why in reasons.items() if not why}
    return (
        f"scene {scene.tag}, {key}: feasible only for us: {sorted(ours - theirs)}, only for kube-scheduler: "
        f"{ {name: reasons[name] for name in sorted(theirs - ours)} }\n{scene.api.get(scene.path(key))['spec']}"
    )


def looked_at(api: Api, keys: Sequence[str]) -> bool:
    """Whether kube-scheduler has come to an end with all of these pods."""
    done = {
        f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
        for pod in api.items("/api/v1/pods")
        if any(each["type"] == "PodScheduled" for each in pod["status"].get("conditions", ()))
    }
    return done.issuperset(keys)


class Scores:
    """kube-scheduler's final scores by pod and node, out of its log (at verbosity 10) as it grows."""

    def __init__(self, scheduler: Service) -> None:
        self._log = scheduler.log
        self._read = 0
        self._found: dict[str, dict[str, int]] = {}

    def of(self, key: str) -> dict[str, int]:
        """Empty if there was no choice: one node, or none."""
        with self._log.open("rb") as log:
            log.seek(self._read)
            whole, _, _ = log.read().rpartition(b"\n")
        self._read += len(whole)
        for match in _SCORE.finditer(whole.decode(errors="replace")):
            self._found.setdefault(match["pod"], {})[match["node"]] = int(match["score"])
        return self._found.get(key, {})
