"""Themes of worlds: what a world has more of than others, since faults hide where many of the same come together.

`draw_world` takes one for each world; `unrepaired` looks for a fault in worlds of the theme that fits.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from random import Random

POOL_WEIGHTS = {"big": 6, "small": 4, "mixed-mig": 2, "single-mig": 2, "sliced": 2, "bare": 2}


@dataclass(frozen=True)
class Theme:
    name: str
    weights: dict[str, float]
    """Happening → how much more often it is drawn."""
    others: float = 0.5
    """How much more often all others are."""
    pods: tuple[int, ...] = (1, 1, 2, 3, 4)
    """Of a Job."""
    fillers: tuple[str, ...] = ("low", "normal", "high")
    """Priorities of many pods that come at once."""
    sizes: tuple[int, ...] = (1, 1, 2, 4, 8)
    """GPUs of a pod."""
    seconds: tuple[int, ...] = (20, 60, 200, 1000)
    """Run times of Jobs."""
    rules: float = 0.25
    """Share of gangs with rules between their pods."""
    guaranteed: bool = False
    """All queues share one cohort without limits, and take back what is theirs."""
    claims: bool = False
    """The queue with least quota fills the cluster, then the one with most wants a whole node."""
    borrows_all: float = 0.1
    """Share of queues without quota of their own."""
    quota: float = 2.0
    """A queue has up to so many times its part of the cluster's GPUs."""
    limits: float = 0.06
    """Share of queued Jobs with a maximum execution time."""
    durations: float = 0.5
    """Share of worlds in which Jobs say how long they run, so that starts are planned."""
    false_durations: float = 0.2
    """Share of them that run longer than they say."""
    ready: float = 0.1
    """Share of worlds with `waitForPodsReady`."""
    by_pool: float = 0.6
    """Share of worlds with a flavor for each pool of nodes, of those with several."""
    cpu_group: float = 0.3
    """Share of worlds in which CPUs are in a resource group of their own."""
    partial: float = 0.12
    """Share of queued Jobs with partial admission."""
    pools: tuple[str, ...] = tuple(POOL_WEIGHTS)
    fewest_pools: int = 1
    most_pools: int = 3
    fewest_nodes: int = 1
    most_nodes: int = 4
    """Of a pool."""
    fewest_queues: int = 1
    most_queues: int = 4
    steps: int = 30
    """Happenings in a world."""
    pauses: tuple[float, ...] = (0.01, 0.5, 3.0, 15.0, 60.0)
    """Between two of them, in seconds."""
    quiet_seconds: float = 300.0
    """At the end nothing happens for so long but the end of work."""
    heals: bool = True
    """Everything is healed before."""


SMALL_WORK = (
    "submit_queued_job",
    "submit_many_jobs",
    "submit_guarded_job",
    "submit_owner",
    "submit_service",
    "submit_pod",
    "submit_many_pods",
    "submit_queued_pod",
    "submit_gated_pod",
    "submit_apart_pods",
)
"""What takes CPUs of nodes that a crowd is made for."""
THEMES = (
    Theme("anything", {}, others=1.0),
    Theme("anything", {}, others=1.0),
    Theme(
        "borrowers",
        {"submit_queued_job": 2, "submit_many_jobs": 3, "delete_work": 2, "submit_guarded_job": 3},
        sizes=(1, 1, 1, 8),
        seconds=(200, 1000, 1000),
        guaranteed=True,
        borrows_all=0.4,
        durations=0.1,
        by_pool=0.2,
    ),
    Theme(
        "losses",
        {"fail_gpu": 8, "fail_node": 1, "submit_many_pods": 6, "submit_queued_job": 4},
        sizes=(1, 1, 2),
        pods=(2, 3, 4),
        seconds=(1000,),
        fillers=("low", "high"),
    ),
    Theme(
        "kubelets",
        {"hang_kubelet": 12, "heal": 0.2, "submit_many_pods": 4, "submit_queued_job": 3, "submit_pod": 2},
        sizes=(1, 2, 4),
        seconds=(200, 1000),
        fillers=("low",),
        ready=0.7,
    ),
    Theme("rules", {"submit_pod_group": 4, "submit_apart_pods": 3, "submit_owner": 3, "move_node": 2}, rules=0.8),
    Theme("crowds", {"submit_large_gang": 8, **dict.fromkeys(SMALL_WORK, 0)}, seconds=(20, 60)),
    Theme(
        "limits",
        {"submit_queued_job": 4, "resize_job": 8},
        sizes=(1, 1, 2),
        seconds=(200, 400),
        limits=0.3,
        durations=0.9,
        false_durations=0.4,
    ),
    Theme(
        "plans",
        {"submit_queued_job": 3, "submit_many_jobs": 2},
        sizes=(1, 2, 8, 8),
        seconds=(60, 200, 400),
        durations=1.0,
        false_durations=0.05,
    ),
    Theme(
        "flavors",
        {"edit_flavor": 2, "submit_queued_job": 2, "submit_owner": 2},
        by_pool=1.0,
        cpu_group=1.0,
        fewest_pools=2,
    ),
    Theme(
        "slow",
        {"slow_watches": 6, "starve": 3, "submit_many_jobs": 6, "good_network": 0},
        sizes=(1, 1, 2),
        pods=(1, 1, 2),
        seconds=(20, 60),
        quota=1.0,
    ),
)
SMALL_THEMES = (
    Theme(
        "overload",
        {"starve": 6, "submit_queued_job": 3, "submit_many_jobs": 2},
        others=0.0,
        sizes=(1, 1, 2),
        pods=(1,),
        seconds=(2, 5, 10),
        rules=0.0,
        quota=0.5,
        durations=0.0,
        cpu_group=0.0,
        pools=("big",),
        most_pools=1,
        fewest_nodes=3,
        most_queues=1,
        steps=30,
        pauses=(0.1, 0.5, 2.0),
        quiet_seconds=60.0,
    ),
    Theme(
        "arrivals",
        {"slow_watches": 4, "submit_queued_job": 4, "submit_many_jobs": 2, "change_priority": 2},
        others=0.0,
        sizes=(1, 2, 4),
        pods=(1, 2),
        seconds=(60, 200),
        quota=0.5,
        durations=0.0,
        cpu_group=0.0,
        pools=("big", "small"),
        most_pools=1,
        most_nodes=2,
        most_queues=1,
        steps=24,
        pauses=(0.1, 0.5, 1.0, 3.0),
        quiet_seconds=100.0,
    ),
    Theme(
        "owners",
        {"submit_many_jobs": 1},
        others=0.0,
        sizes=(1,),
        pods=(1,),
        seconds=(1000,),
        rules=0.0,
        guaranteed=True,
        claims=True,
        borrows_all=0.0,
        quota=1.5,
        durations=0.0,
        cpu_group=0.0,
        pools=("big",),
        most_pools=1,
        fewest_nodes=2,
        most_nodes=2,
        fewest_queues=2,
        most_queues=2,
        steps=6,
        pauses=(3.0, 15.0),
        quiet_seconds=160.0,
    ),
    Theme(
        "gangs",
        {"submit_large_gang": 6, "delete_work": 1, "submit_pod": 1},
        others=0.0,
        durations=0.0,
        pools=("big", "small"),
        most_pools=2,
        fewest_nodes=2,
        most_queues=1,
        steps=8,
        pauses=(3.0, 15.0, 60.0),
        quiet_seconds=60.0,
    ),
    Theme(
        "starts",
        {"submit_queued_job": 6, "submit_job_without_queue": 6, "submit_pod": 2},
        others=0.0,
        sizes=(1, 2, 4, 8),
        pods=(1,),
        seconds=(60, 200, 400),
        rules=0.0,
        durations=1.0,
        false_durations=0.0,
        cpu_group=0.0,
        pools=("big",),
        most_pools=1,
        fewest_nodes=3,
        most_nodes=3,
        most_queues=2,
        steps=14,
        pauses=(1.0, 3.0, 30.0),
        quiet_seconds=100.0,
    ),
    Theme(
        "lost members",
        {"submit_queued_job": 3, "submit_many_pods": 4, "fail_gpu": 8},
        others=0.0,
        sizes=(1,),
        pods=(2, 3, 4),
        seconds=(1000,),
        fillers=("low", "low", "high"),
        rules=0.0,
        durations=0.0,
        cpu_group=0.0,
        pools=("big", "small"),
        most_pools=1,
        most_nodes=2,
        most_queues=2,
        steps=10,
        pauses=(3.0, 15.0, 60.0),
        quiet_seconds=260.0,
        heals=False,
    ),
    Theme(
        "stuck",
        {"hang_kubelet": 4, "submit_many_pods": 4, "submit_queued_job": 2, "submit_pod": 3},
        others=0.0,
        sizes=(1, 2, 4),
        seconds=(1000,),
        fillers=("low",),
        durations=0.0,
        ready=0.4,
        cpu_group=0.0,
        pools=("big", "small"),
        most_pools=1,
        most_nodes=3,
        most_queues=2,
        steps=10,
        pauses=(3.0, 15.0, 60.0),
        quiet_seconds=180.0,
        heals=False,
    ),
    Theme(
        "sizes",
        {"submit_queued_job": 3, "resize_job": 8},
        others=0.0,
        sizes=(1, 1, 2),
        pods=(2, 3, 4),
        seconds=(1000,),
        rules=0.0,
        limits=0.0,
        quota=0.8,
        durations=0.0,
        cpu_group=0.0,
        partial=0.3,
        pools=("big", "small"),
        most_pools=1,
        most_nodes=2,
        most_queues=2,
        steps=14,
        pauses=(3.0, 15.0, 60.0),
        quiet_seconds=100.0,
    ),
    Theme(
        "replicas",
        {
            "submit_queued_job": 2,
            "submit_pod": 4,
            "submit_job_without_queue": 3,
            "submit_gated_pod": 3,
            "open_gates": 3,
        },
        others=0.0,
        seconds=(60, 200),
        durations=0.2,
        pools=("bare", "sliced"),
        fewest_pools=2,
        most_nodes=2,
        most_queues=2,
        steps=14,
        pauses=(0.5, 3.0, 15.0),
        quiet_seconds=100.0,
    ),
)
"""Of worlds that cost little: few nodes, little time, and only what makes one thing happen again and again."""
ALL_THEMES = (*THEMES, *THEMES, *THEMES, *SMALL_THEMES)


def theme_of(seed: int) -> Theme:
    """Of the world with this seed."""
    return Random(seed).choice(ALL_THEMES)


def seeds_of(theme: str, first: int) -> Iterator[int]:
    """Of the worlds of this theme; of all where it is empty."""
    return (seed for seed in count(first) if theme in ("", theme_of(seed).name))
