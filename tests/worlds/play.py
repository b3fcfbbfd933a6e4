"""Plays a world: draws happenings, lets time pass between them, and asks the judge after every change.

play_virtually(seed)             on the virtual clock
await play_world(spec, cluster)  on any cluster: what happened, and what was wrong
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import Protocol

from tests.worlds import happenings
from tests.worlds.draw_world import GPU, POOL_LABEL, WorldSpec, draw_world
from tests.worlds.judge import Judge, Patience
from tests.worlds.moves import Moves
from tests.worlds.owner_controller import RESOURCES as OWNER_RESOURCES
from tests.worlds.owner_controller import OwnerController

from windlass.model.group_membership import GroupSource
from windlass.model.unstructured import Unstructured

RESOURCES = {
    **OWNER_RESOURCES,
    "Deployment": "deployments.apps",
    "StatefulSet": "statefulsets.apps",
    "Job": "jobs.batch",
    "Pod": "pods",
    "PodDisruptionBudget": "poddisruptionbudgets.policy",
    "PriorityClass": "priorityclasses.scheduling.k8s.io",
    "ClusterQueue": "clusterqueues.kueue.x-k8s.io",
    "Cohort": "cohorts.kueue.x-k8s.io",
    "LocalQueue": "localqueues.kueue.x-k8s.io",
    "ResourceFlavor": "resourceflavors.kueue.x-k8s.io",
    "Topology": "topologies.kueue.x-k8s.io",
    "WorkloadPriorityClass": "workloadpriorityclasses.kueue.x-k8s.io",
}
QUIET_PARTS = 20
CHECK_SECONDS = 5.0
TWO_REPLICAS_SHARE = 0.3


@dataclass
class Report:
    seed: int
    happened: Counter[str] = field(default_factory=Counter)
    drawn: Counter[str] = field(default_factory=Counter)
    """Kinds of nodes, queues and work, and rules, as often as they were drawn."""
    problems: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    """What the scheduler did: binds, admissions, evictions, requests by method and answer."""
    cpu_seconds: float = 0.0
    log: list[str] = field(default_factory=list)
    """The last things that happened."""
    sought: str = ""
    """A pattern: the world ends at the first problem that it is found in."""

    @property
    def is_found(self) -> bool:
        return bool(self.sought) and any(re.search(self.sought, problem) for problem in self.problems)


class WorldCluster(Protocol):
    """A cluster on which worlds are played: virtual, `windlass up`, or a real API server."""

    cannot: frozenset[str]
    """Happenings that it can't play."""
    group_forms: tuple[GroupSource, ...]
    """Keys of GROUP_FORMS_DRAWN whose objects it has."""
    counts: dict[str, int]

    async def start(self, judge: Judge) -> None:
        """Tells the judge of every change from now on."""

    async def create(self, resource: str, tree: Unstructured) -> None: ...
    async def list(self, resource: str) -> list[Unstructured]: ...
    async def patch(self, resource: str, tree: Unstructured, merge: Unstructured) -> None: ...
    async def delete(self, resource: str, tree: Unstructured) -> None: ...
    def fail(self, target: str) -> None: ...
    def hang_kubelet(self, node: str) -> None: ...
    def heal(self) -> None: ...
    async def restart_scheduler(self, pause: float) -> None: ...
    async def cut_off_leader(self) -> None: ...
    def set_network(self, latency: float, failures: float, watch_lag: float, decision_seconds: float) -> None: ...
    async def stop(self) -> None: ...


class Play:
    """A world while it is played; the happenings act on it."""

    def __init__(
        self, spec: WorldSpec, cluster: WorldCluster, report: Report, judge: Judge, *, moves: bool = False
    ) -> None:
        self.spec, self.cluster, self.report, self._judge = spec, cluster, report, judge
        self.moves = Moves(self) if moves else None
        self.rng = Random(spec.seed + 1)
        gpus = [int(node.tree["status"]["capacity"].get(GPU, 0)) for node in spec.nodes]
        self.gpus_of_cluster, self.gpus_of_largest_node = sum(gpus), max(gpus)
        self.group_forms = cluster.group_forms
        self.owner_resources = tuple(OWNER_RESOURCES.values()) if self.can("submit_owner") else ()
        self._serial = 0
        self._is_bad, self._is_away, self._calm_from = False, False, 0.0

    def can(self, happening: str) -> bool:
        return happening not in self.cluster.cannot

    def name(self, prefix: str) -> str:
        self._serial += 1
        return f"{prefix}-{self._serial}"

    def now(self) -> float:
        return time.time()

    def drew(self, what: str) -> None:
        self.report.drawn[what] += 1

    async def create(self, tree: Unstructured) -> None:
        if self.moves is not None:
            self.moves.opt_in(tree)
        resource = RESOURCES.get(tree["kind"]) or f"podgroups.{tree['apiVersion'].partition('/')[0]}"
        await self.cluster.create(resource, tree)

    async def list(self, resource: str) -> list[Unstructured]:
        return await self.cluster.list(resource)

    async def patch(self, resource: str, tree: Unstructured, merge: Unstructured) -> None:
        await self.cluster.patch(resource, tree, merge)

    async def delete(self, resource: str, tree: Unstructured) -> None:
        await self.cluster.delete(resource, tree)

    async def node_names(self) -> list[str]:
        return [node["metadata"]["name"] for node in await self.list("nodes")]

    def physical_gpus(self, node: Unstructured) -> int:
        """GPUs that can fail on their own."""
        pool = node["metadata"]["labels"].get(POOL_LABEL)
        found = next((one for one in self.spec.fleet.spec.pools if one.name == pool), None)
        return found.gpu_count if found is not None and pool in ("big", "small") else 0

    def fail(self, target: str) -> None:
        self._judge.note(f"fails: {target}")
        self.cluster.fail(target)

    def hang_kubelet(self, node: str) -> None:
        self.cluster.hang_kubelet(node)

    def heal(self) -> None:
        self.cluster.heal()

    async def restart_scheduler(self) -> None:
        self._is_away = True
        await self.cluster.restart_scheduler(self.rng.choice((0.1, 5.0)))
        self._is_away = False
        self._disturb()

    async def cut_off_leader(self) -> None:
        self._is_away = True
        await self.cluster.cut_off_leader()
        self._is_away = False
        self._disturb()

    def set_network(
        self, latency: float = 0.002, failures: float = 0.0, watch_lag: float = 0.0, decision_seconds: float = 0.0
    ) -> None:
        self._is_bad = bool(failures or watch_lag or decision_seconds or latency > 0.002)
        self._disturb()
        self.cluster.set_network(latency, failures, watch_lag, decision_seconds)

    def _disturb(self) -> None:
        self._calm_from = time.time() + self._judge.patience.recovery
        self._judge.is_calm = False

    def update_calm(self) -> None:
        self._judge.is_calm = not self._is_bad and not self._is_away and time.time() >= self._calm_from


async def play_world(
    spec: WorldSpec,
    cluster: WorldCluster,
    report: Report,
    lengths: tuple[int, float],
    patience: Patience | None = None,
    *,
    moves: bool = False,
) -> None:
    """`lengths`: how many happenings, and how many seconds nothing happens at the end."""
    steps, quiet = lengths
    judge = Judge(report, patience)
    judge.guarantees.is_classical = not spec.settings.fair_sharing
    judge.limits.ready_seconds = spec.settings.ready_seconds
    play = Play(spec, cluster, report, judge, moves=moves)
    report.drawn.update(spec.drawn)
    checking = asyncio.create_task(_check_again_and_again(play, judge))
    try:
        await cluster.start(judge)
        for tree in [*spec.objects, *WORK_PRIORITIES]:
            await play.create({**tree, "metadata": {**tree["metadata"]}})
        await asyncio.sleep(5 * spec.pace)
        for _ in range(steps):
            if report.is_found:
                return
            happening = happenings.draw_happening(play)
            report.happened[happening.__name__] += 1
            judge.on_happening(happening.__name__)
            await happening(play)
            if play.moves is not None:
                await play.moves.stir()
            await asyncio.sleep(play.rng.choice(spec.theme.pauses) * spec.pace)
        await _become_quiet(play)
        judge.begin_quiet()
        for _ in range(QUIET_PARTS):
            if report.is_found:
                return
            await asyncio.sleep(quiet / QUIET_PARTS)
        report.counts.update(cluster.counts)
        judge.check_at_rest()
    finally:
        checking.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await checking
        report.log += judge.log
        await cluster.stop()


async def _check_again_and_again(play: Play, judge: Judge) -> None:
    owners = OwnerController(play) if play.can("submit_owner") else None
    while True:
        await asyncio.sleep(CHECK_SECONDS)
        if owners is not None:
            await owners.sync()
        play.update_calm()
        judge.check()


async def _become_quiet(play: Play) -> None:
    play.set_network()
    if play.spec.theme.heals:
        play.heal()
    for node in await play.list("nodes"):
        taints = [taint for taint in node["spec"].get("taints") or () if taint["key"] != happenings.SPECIAL["key"]]
        await play.patch("nodes", node, {"spec": {"unschedulable": None, "taints": taints or None}})
    if play.moves is not None:
        await play.moves.become_quiet()
    for queue in await play.list("clusterqueues.kueue.x-k8s.io"):
        await play.patch("clusterqueues.kueue.x-k8s.io", queue, {"spec": {"stopPolicy": "None"}})


WORK_PRIORITIES = [
    {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "WorkloadPriorityClass",
        "metadata": {"name": name},
        "value": value,
    }
    for name, value in (("work-low", 10), ("work-high", 2000))
]


def play_virtually(seed: int, steps: int | None = None, sought: str = "", moves: bool = False) -> Report:
    """`steps`: happenings; None: as many as its theme has. `moves`: with asks and notices."""
    from tests.worlds.virtual_cluster import VirtualCluster
    from tests.worlds.virtual_time import Machine, run_virtually

    report, began = Report(seed, sought=sought), time.process_time()

    async def main(machine: Machine) -> None:
        spec, rng = draw_world(seed), Random(seed + 2)
        replicas = 2 if rng.random() < TWO_REPLICAS_SHARE else 1
        report.drawn[f"replicas: {replicas}"] += 1
        cluster = VirtualCluster(spec.nodes, spec.settings, rng, machine, replicas)
        lengths = steps or spec.theme.steps, spec.theme.quiet_seconds
        await play_world(spec, cluster, report, lengths, moves=moves)

    run_virtually(main, seed)
    report.cpu_seconds = time.process_time() - began
    return report
