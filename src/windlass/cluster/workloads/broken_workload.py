"""The workload of a unit that can't be built because of a bug of ours: held, with the bug's id.

`workload_index` makes it in place of the one that could not be built. Nothing that the objects say is read, since that
is what fails; what runs of it stays where it is.
"""

from __future__ import annotations

from windlass.cluster.workloads.units import Unit
from windlass.model.bug import INTERNAL_ERROR, bug_of
from windlass.model.meta import ObjectMeta
from windlass.model.pod import Pod
from windlass.model.workload import Admission, PodSet, PodSetAssignment, Workload


def broken_workload(unit: Unit, error: Exception, now: int) -> Workload:
    bound = [pod for pod in unit.pods if pod.is_bound]
    members = bound or unit.pods
    sets = tuple(
        PodSet(f"set-{number}", 1, _named(pod.metadata.namespace, pod.metadata.name), pod_keys=(pod.key,))
        for number, pod in enumerate(members, start=1)
    )
    namespace, _, name = unit.key.key.partition("/")
    assignments = tuple(
        PodSetAssignment(pod_set.name, 1, {}, {}, {pod.spec.node_name: 1})
        for pod_set, pod in zip(sets, bound, strict=False)
    )
    message = bug_of(error).message
    return Workload(
        key=unit.key.key,
        kind=unit.key.kind,
        pod_sets=sets or (PodSet("main", 1, _named(namespace, name)),),
        created=now,
        queued_at=now,
        admission=Admission("", assignments) if bound else None,
        hold="" if bound else message,
        hold_code="" if bound else INTERNAL_ERROR,
        all_or_nothing=False,
        evictable=False,
    )


def _named(namespace: str, name: str) -> Pod:
    """A pod that asks for nothing."""
    return Pod(metadata=ObjectMeta(name=name, namespace=namespace))
