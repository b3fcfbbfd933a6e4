"""A replica that saw every change knows the same as one that starts now, whatever the order."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.scheduler.caches import (
    job,
    node,
    pod,
    workload,
    world,
)

from windlass.cluster.delta import Deleted, Delta, Put
from windlass.model.codec import Unreadable, decode_object
from windlass.model.configuration import Settings
from windlass.model.errors import InputError
from windlass.scheduler.cache import SchedulerCache

NAMES = st.sampled_from(["p0", "p1", "p2"])
STATES = st.sampled_from(["pending", "theirs", "leaving", "n1", "n2", "ended", "failed", "odd", "odd n1", "deleted"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("pod"), NAMES, STATES),
        st.tuples(st.just("node"), st.sampled_from(["n1", "n2"]), st.sampled_from(["in", "out", "deleted"])),
        st.tuples(st.just("job"), st.just("j"), st.sampled_from(["mine", "theirs", "deleted"])),
        st.tuples(st.just("workload"), st.just("w"), st.sampled_from(["waits", "admitted", "deleted"])),
        st.tuples(st.just("kueue"), st.just(""), st.sampled_from(["live", "gone"])),
        st.tuples(st.just("flush"), st.just(""), st.just("")),
    ),
    max_size=30,
)


ORDER = {"deleted": 0, "pending": 1, "theirs": 1, "odd": 1, "leaving": 1, "n1": 2, "n2": 2, "odd n1": 2}
ORDER |= {"ended": 3, "failed": 3}


def state_of(name: str, state: str) -> Delta:
    match state:
        case "deleted":
            return Deleted("Pod", f"a/{name}")
        case "odd" | "odd n1":
            return Put(Unreadable(InputError("no"), "Pod", "a", name, state[4:], "windlass"))
        case "n1" | "n2":
            return Put(pod(name, node=state))
        case "theirs":
            return Put(pod(name, "default-scheduler"))
        case "leaving":
            return Put(pod(name, deletionTimestamp="2026-01-01T00:00:00Z"))
        case "ended" | "failed":
            spec = {"containers": [{"name": "c"}], **({"nodeName": "n1"} if state == "ended" else {})}
            meta = {"name": name, "namespace": "a", "uid": f"u-{name}"}
            status = {"phase": "Succeeded" if state == "ended" else "Failed"}
            tree_ = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec, "status": status}
            return Put(decode_object(tree_))
        case _:
            return Put(pod(name))


def delta_of(kind: str, name: str, state: str) -> Delta:
    if kind == "pod":
        return state_of(name, state)
    if kind == "node":
        return Deleted("Node", name) if state == "deleted" else Put(node(name, pool=state))
    if kind == "job":
        scheduler = "windlass" if state == "mine" else "default-scheduler"
        return Deleted("Job", "a/j", "batch") if state == "deleted" else Put(job("j", scheduler=scheduler))
    deleted = Deleted("Workload", "a/w", "kueue.x-k8s.io")
    return deleted if state == "deleted" else Put(workload("w", state == "admitted"))


def known_to(some: SchedulerCache) -> dict[str, Any]:
    some.flush(2_000)
    snapshot = some.store.snapshot(2_000)
    pods = snapshot.pods
    return {
        "pods": {pods.keys[row]: int(pods.node[row]) for row in np.flatnonzero(pods.alive)},
        "nodes": sorted(found.name for found in snapshot.nodes.objects),
        "workloads": sorted((found.key, found.admission is not None) for found in snapshot.workloads),
        "unreadable": sorted(snapshot.unreadable),
        "queued": sorted(owner.metadata.name for owner in some.owners.without_parents()),
        "cache": (sorted(some.pods), sorted(some.nodes), sorted(some.unreadable), sorted(some.objects)),
    }


@given(steps=STEPS)
@settings(max_examples=150)
def test_a_replica_that_saw_every_change_knows_what_one_knows_that_starts_now(
    steps: list[tuple[str, str, str]],
) -> None:
    options = {"settings": Settings(node_selector={"pool": "in"})}
    old, last = world(**options), dict[tuple[str, str], Delta]()
    states: dict[str, str] = {}
    for kind, name, state in steps:
        if kind == "pod" and ORDER[state] <= ORDER[states.get(name, "deleted")]:
            old.push([Deleted("Pod", f"a/{name}")])  # a pod never leaves its node: this is the next one of its name
        if kind == "flush":
            old.flush(1_000)
        elif kind == "kueue":
            old.responsibility.kueue_is_live = state == "live"
            old.reevaluate_queue_ownership()
        else:
            last[kind, name] = delta_of(kind, name, state)
            old.push([last[kind, name]])
            states |= {name: state} if kind == "pod" else {}
    new = world(**options)
    new.responsibility.kueue_is_live = old.responsibility.kueue_is_live
    new.push([delta for delta in last.values() if isinstance(delta, Put)])
    assert known_to(old) == known_to(new)
