"""Other people's pods and troubles, none of which touches the question."""

# ruff: noqa: E501
from __future__ import annotations

import random

from tests.diagnose_fresh.world import World, days


def add_noise(w: World, seed: int) -> None:
    """Fifty pods of others with troubles of their own, old events, and faults that have healed; none of it touches the question."""
    rnd = random.Random(seed)
    for i in range(3):
        w.node(
            f"cpu-pool-{i}",
            cpu="64",
            mem="250Gi",
            labels={"pool": "general"},
            taints=[{"key": "pool", "value": "general", "effect": "NoSchedule"}],
        )
    w.node(
        "other-gpu-0",
        gpu=2,
        product="NVIDIA-A10",
        taints=[{"key": "dedicated", "value": "vision", "effect": "NoSchedule"}],
        labels={"pool": "vision"},
    )
    tol = [{"key": "pool", "operator": "Exists"}]
    for i in range(2):
        w.pod(
            "vision-lab",
            f"tracker-{i}",
            node="other-gpu-0",
            gpu=1,
            spec={"tolerations": [{"operator": "Exists"}]},
            age=days(4),
        )
    w.event(
        "",
        "Node",
        "other-gpu-0",
        "GPUUnhealthy",
        "GPU 1 reported Xid 31, marked unhealthy",
        last=days(3),
        source="node-health",
    )
    w.event(
        "",
        "Node",
        "other-gpu-0",
        "GPUHealthy",
        "GPU 1 is healthy again after a reset",
        last=days(3) - 40,
        type="Normal",
        source="node-health",
    )
    w.event(
        "",
        "Node",
        "cpu-pool-1",
        "NodeNotReady",
        "Node cpu-pool-1 status is now: NodeNotReady",
        last=days(2),
        source="node-controller",
    )
    w.event(
        "",
        "Node",
        "cpu-pool-1",
        "NodeReady",
        "Node cpu-pool-1 status is now: NodeReady",
        last=days(2) - 12,
        type="Normal",
        source="kubelet",
    )
    kinds = ["ok", "ok", "oom", "pull", "crash", "cpu", "evicted", "done", "healed", "pvc"]
    for i in range(48):
        ns, kind, name = (
            rnd.choice(["shop", "billing", "search", "mail"]),
            kinds[i % len(kinds)],
            f"{rnd.choice(['api', 'worker', 'cron', 'cache', 'web'])}-{i:02}-{rnd.randrange(16**5):05x}",
        )
        at = {
            "node": f"cpu-pool-{i % 3}",
            "spec": {"tolerations": tol},
            "cpu": "200m",
            "mem": "256Mi",
            "age": rnd.randrange(60, 9000),
        }
        if kind == "ok":
            w.pod(ns, name, **at)
        elif kind == "oom":
            w.pod(
                ns,
                name,
                state="crash",
                reason="OOMKilled",
                exit_code=137,
                restarts=rnd.randrange(3, 60),
                limits={"memory": "256Mi"},
                **at,
            )
        elif kind == "pull":
            w.pod(
                ns,
                name,
                state="waiting",
                reason="ImagePullBackOff",
                message='Back-off pulling image "registry.shop/app:rc7"',
                image="registry.shop/app:rc7",
                **at,
            )
            if i < 20:
                w.event(
                    ns,
                    "Pod",
                    name,
                    "Failed",
                    'Failed to pull image "registry.shop/app:rc7": not found',
                    count=9,
                    source="kubelet",
                )
        elif kind == "crash":
            w.pod(ns, name, state="crash", exit_code=2, restarts=11, **at)
            w.log(ns, name, "main", "panic: config key DATABASE_URL is empty")
        elif kind == "cpu":
            w.pod(
                ns,
                name,
                state="unschedulable",
                message="0/9 nodes are available: 3 Insufficient cpu, 6 node(s) had untolerated taint(s).",
                cpu="90",
                mem="1Gi",
                spec={"tolerations": tol},
            )
        elif kind == "evicted":
            w.pod(ns, name, state="rejected", reason="Evicted", message="The node was low on resource: memory.", **at)
        elif kind == "done":
            w.pod(ns, name, state="succeeded", **at)
        elif kind == "healed":
            w.pod(ns, name, restarts=4, reason="OOMKilled", exit_code=137, since=days(2), **{**at, "age": days(5)})
        else:
            w.pod(
                ns,
                name,
                state="unschedulable",
                message="0/9 nodes are available: pod has unbound immediate PersistentVolumeClaims.",
                mem="1Gi",
                spec={
                    "tolerations": tol,
                    "volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "lost"}}],
                },
            )
