"""Whether the scheduler that a pod names works: its pods, its workload and its Lease.

Called by `waiting` for a pod that a node would take: that its scheduler will decide soon may only be said of a
scheduler that works and has looked at the pod.
"""

from __future__ import annotations

from windlass.diagnose.evidence import ClusterObject, Evidence
from windlass.diagnose.finding import Finding, MissingEvidence
from windlass.diagnose.log_patterns import LONG_LINE
from windlass.diagnose.reports import COMPLAINS
from windlass.diagnose.scheduler_condition import latest_words
from windlass.diagnose.stack_components import container_failure
from windlass.diagnose.subject import phase_of
from windlass.diagnose.unstructured import find_condition, nested_int, nested_maps, nested_string
from windlass.model.times import format_duration, parse_timestamp

DEFAULT_SCHEDULERS = ("default-scheduler", "windlass")
DECIDES_WITHIN = 300
"""Seconds within which a scheduler should have placed a pod that fits, and renews its Lease many times."""
OTHER_NAMES = {"default-scheduler": "kube-scheduler"}
"""Scheduler → the name of its pods and its Lease, where that is another."""


def scheduler_finding(evidence: Evidence, name: str, item: ClusterObject | None, now: int) -> Finding | None:
    """Why no scheduler of that name decides about the pod; None if nothing shows that."""
    own = OTHER_NAMES.get(name, name)
    pods = [pod for pod in evidence.of_kind("Pod") if _is_scheduler(pod, own) and not _uses(pod, name)]
    if any(not _trouble(pod) for pod in pods):
        return None
    if pods:
        return _failing(evidence, name, pods[0], now)
    for kind in ("Deployment", "StatefulSet"):
        for owner in evidence.of_kind(kind):
            if _is_scheduler(owner, own) and not nested_int(owner.data, "status", "readyReplicas"):
                wanted = nested_int(owner.data, "spec", "replicas")
                message = f"scheduler {name} does not run: {owner.title} has no ready pod, and wants {wanted}"
                remedy = "scale it up or see its events, or name a scheduler that runs in schedulerName"
                return Finding("WRONG_SCHEDULER", message, _stale_lease(evidence, own, now), remedy=remedy)
    stale = _stale_lease(evidence, own, now)
    if stale:
        return Finding("WRONG_SCHEDULER", f"scheduler {name} does not run: it no longer renews its Lease", stale)
    if name in DEFAULT_SCHEDULERS or _is_heard_of(evidence, name, item):
        return None
    message = f"no scheduler named {name} runs in the cluster (no Lease and no pod of that name)"
    unread = MissingEvidence("the schedulers that run", f"kubectl get pods,leases -A | grep {name}")
    is_known = evidence.has_kind("Lease") or "Pod" in evidence.complete_kinds
    return Finding("WRONG_SCHEDULER", message, missing=() if is_known else (unread,))


def is_untouched(evidence: Evidence, item: ClusterObject) -> bool:
    """Whether no scheduler has said anything about a pod of the cluster; one of a manifest has no uid."""
    return bool(item.uid) and not find_condition(item.data, "PodScheduled") and not evidence.events_of(item)


def _is_scheduler(item: ClusterObject, name: str) -> bool:
    return name in item.name and "schedul" in item.name


def _uses(pod: ClusterObject, scheduler: str) -> bool:
    """Whether it is placed by that scheduler, and so can't be it; static pods keep the default in their spec."""
    named = nested_string(pod.data, "spec", "schedulerName")
    return named == scheduler and scheduler != DEFAULT_SCHEDULERS[0]


def _trouble(pod: ClusterObject) -> str:
    """Why it does not work; empty if it does, or if its status does not say."""
    phase, ready = phase_of(pod), find_condition(pod.data, "Ready")
    if failure := container_failure(pod):
        return failure
    if phase != "Running":
        return f"it is {phase or 'Pending'}"
    return "it is not ready" if nested_string(ready, "status") == "False" else ""


def _failing(evidence: Evidence, name: str, pod: ClusterObject, now: int) -> Finding:
    restarts = sum(
        nested_int(status, "restartCount") for status in nested_maps(pod.data, "status", "containerStatuses")
    )
    trouble = _trouble(pod)
    often = f" and has restarted {restarts} times" if restarts else ""
    lines = [(log.origin, line.strip()) for log in evidence.logs_of(pod) for line in log.lines if line.strip()]
    complaints = [line for line in lines if COMPLAINS.search(line[1])] or lines
    said = tuple(f"{origin}: {line[:LONG_LINE]}" for origin, line in complaints[-1:])
    logs = f"kubectl logs -n {pod.namespace} {pod.name} --previous"
    return Finding(
        "WRONG_SCHEDULER",
        f"scheduler {name} does not work: {pod.title}: {trouble}{often}",
        (*said, *_stale_lease(evidence, OTHER_NAMES.get(name, name), now)),
        remedy=f"repair the scheduler ({logs}), or name one that runs in schedulerName",
    )


def _stale_lease(evidence: Evidence, name: str, now: int) -> tuple[str, ...]:
    """That the scheduler's Leases were all renewed too long ago; empty if one is fresh, or if none is known."""
    leases = [lease for lease in evidence.of_kind("Lease") if lease.name == name or _is_scheduler(lease, name)]
    renewed = [nested_string(lease.data, "spec", "renewTime") for lease in leases]
    newest = max(renewed, default="")
    age = now - parse_timestamp(newest) if newest else 0
    if age < DECIDES_WITHIN:
        return ()
    return (f"{leases[renewed.index(newest)].title} was renewed {format_duration(age)} ago",)


def _is_heard_of(evidence: Evidence, name: str, item: ClusterObject | None) -> bool:
    """Whether a Lease, a pod or the namespace of one has that name, or a scheduler has spoken about the pod."""
    if item is not None and (find_condition(item.data, "PodScheduled") or latest_words(evidence, item)):
        return True
    leases = any(name in lease.name for lease in evidence.of_kind("Lease"))
    return leases or any(name in pod.name or pod.namespace == name for pod in evidence.of_kind("Pod"))
