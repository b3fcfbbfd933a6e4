"""What others have published about the speed of their schedulers, and what their numbers include.

Read by `report`, which puts it beside ours. None of it was measured here.
"""

from __future__ import annotations

import msgspec


class Peer(msgspec.Struct, frozen=True):
    project: str
    benchmark: str
    """Which of their benchmarks."""
    per_second: float | None = None
    seconds: float | None = None
    threshold: bool = False
    """A lower bound that their tests hold them to, not a measurement."""

    @property
    def text(self) -> str:
        number = f"{self.per_second:,.4g}/s" if self.per_second is not None else f"{self.seconds:,.4g} s"
        return f"{self.project} {self.benchmark}: {'≥ ' if self.threshold else ''}{number}"


_PERF = "kube-scheduler"
PEERS: dict[str, Peer] = {
    "plain-10k": Peer(_PERF, "SchedulingBasic, 5,000 nodes, 10,000 pods", 680, threshold=True),
    "plain-50k": Peer(_PERF, "SchedulingBasic, 5,000 nodes, 50,000 pods", 790, threshold=True),
    "shapes-10k": Peer(_PERF, "SchedulingNodeAffinity, 5,000 nodes, 10,000 pods", 540, threshold=True),
    "mixed-10k": Peer(_PERF, "SchedulingPodAffinity, 5,000 nodes, 5,000 pods", 70, threshold=True),
    "mixed-50k": Peer(_PERF, "TopologySpreading by default, 5,000 nodes, 50,000 pods", 160, threshold=True),
    "gang-1x1000": Peer("KAI", "one job of 512 pods on 512 nodes, preferred topology", seconds=48.7),
    "preempt-pod": Peer("KAI", "one GPU reclaimed while 4,000 jobs run, 500 nodes", seconds=13.9),
    "preempt-node": Peer(_PERF, "PreemptionAsync, 5,000 nodes, 20,000 running", 570, threshold=True),
    "preempt-gang": Peer("Kueue", "one cycle, about 2,000 nodes and 700 candidates (issue 13148)", seconds=40),
    "never-full": Peer("KAI", "10 pods of 80 GPUs declared unschedulable, 500 nodes", seconds=249.5),
    "kueue-baseline": Peer("Kueue", "its own run of this configuration", 42.7),
    "kueue-large-scale": Peer("Kueue", "its own run of this configuration", 42.4),
    "kueue-tas": Peer("Kueue", "its own run of this configuration", 37.4),
}

PEERS_NOTE = (
    "The peers' numbers are theirs, of other machines, and of more than deciding: kube-scheduler's (scheduler_perf) "
    "include an API server with etcd and the binds, on six cores; Kueue's (test/performance/scheduler) its API server "
    "and a client limit of 50 requests a second, which is what bounds them; KAI's (test/e2e/scale, KWOK) all of a "
    "cluster's control plane. Ours are `decide` alone, one thread, processor time. So they say whether deciding could "
    "be the bottleneck, not how many times faster a cluster would be."
)
