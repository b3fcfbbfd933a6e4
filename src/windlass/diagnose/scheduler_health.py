"""Whether the scheduler that a pod names works: its pods, its workload and its Lease.

`waiting` asks first of all for a pod that no scheduler has looked at, since nothing that others say about it can then
be the reason, and for a pod that a node would take: only of a scheduler that works may be said that it decides soon.
"""

from __future__ import annotations

import difflib

from windlass.diagnose.evidence import ClusterObject, Evidence, once_per_evidence
from windlass.diagnose.explanations import USERS
from windlass.diagnose.finding import Finding, MissingEvidence
from windlass.diagnose.log_patterns import LONG_LINE
from windlass.diagnose.reports import COMPLAINS
from windlass.diagnose.scheduler_condition import latest_words
from windlass.diagnose.stack_components import container_failure
from windlass.diagnose.subject import node_of, phase_of
from windlass.diagnose.unstructured import find_condition, nested_int, nested_maps, nested_string
from windlass.model.names.kubernetes import DEFAULT_SCHEDULER_NAME
from windlass.model.times import format_duration, parse_timestamp

DEFAULT_SCHEDULERS = (DEFAULT_SCHEDULER_NAME, "windlass")
DECIDES_WITHIN = 300
"""Seconds within which a scheduler should have placed a pod that fits, and renews its Lease many times."""
OTHER_NAMES = {DEFAULT_SCHEDULER_NAME: "kube-scheduler"}
"""Scheduler → the name of its pods and its Lease, where that is another."""


def scheduler_finding(evidence: Evidence, name: str, item: ClusterObject | None, now: int) -> Finding | None:
    """Why no scheduler of that name decides about the pod; None if nothing shows that."""
    pods = _of_scheduler(evidence, "Pod", name)
    if any(not _trouble(pod) for pod in pods):
        return None
    if pods:
        return _failing(evidence, name, pods[0], now)
    stale = _stale_lease(evidence, name, now)
    for kind in ("Deployment", "StatefulSet"):
        for owner in _of_scheduler(evidence, kind, name):
            if not nested_int(owner.data, "status", "readyReplicas"):
                wanted = nested_int(owner.data, "spec", "replicas")
                message = f"scheduler {name} does not run: {owner.title} has no ready pod, and wants {wanted}"
                command = f"kubectl describe -n {owner.namespace} {kind.lower()} {owner.name}"
                remedy = f"scale it up, or see its events ({command})"
                return Finding("WRONG_SCHEDULER", message, stale, remedy=remedy, missing=_unproven(name, owner))
    if stale:
        message = f"scheduler {name} does not run: it no longer renews its Lease"
        return Finding("WRONG_SCHEDULER", message, stale, remedy=START_REMEDY)
    if name in DEFAULT_SCHEDULERS or _is_heard_of(evidence, name, item):
        return None
    return _unheard_of(evidence, name)


START_REMEDY = "start it again"


def _unheard_of(evidence: Evidence, name: str) -> Finding:
    """Nothing in the cluster has that name; one that is spelt nearly the same is suggested."""
    message = f"no scheduler named {name} runs in the cluster (no Lease and no pod of that name)"
    unread = MissingEvidence("the schedulers that run", f"kubectl get pods,leases -A | grep {name}")
    is_known = evidence.has_kind("Lease") or "Pod" in evidence.complete_kinds
    placing = {user for user in _users(evidence) if _has_placed(evidence, user)} | set(DEFAULT_SCHEDULERS[:1])
    published = (configuration.settings.scheduler_names for configuration in evidence.published_configurations)
    known = placing.union(DEFAULT_SCHEDULERS, *published) - {name}
    close = next(iter(difflib.get_close_matches(name, sorted(known), 1)), "")
    remedy = f"use schedulerName: {close}" if close else ""
    if close in placing:
        remedy = f"use schedulerName: {close}, which places other pods here"
    missing = () if is_known else (unread,)
    return Finding("WRONG_SCHEDULER", message, remedy=remedy, missing=missing, suggestion=close, changed_by=USERS)


def is_heard_of(evidence: Evidence, name: str, item: ClusterObject) -> bool:
    """Whether anything in the cluster shows that a scheduler of that name may exist."""
    traces = (_of_scheduler(evidence, kind, name) for kind in ("Pod", "Lease", "Deployment", "StatefulSet"))
    return name in DEFAULT_SCHEDULERS or any(traces) or _is_heard_of(evidence, name, item)


def is_untouched(evidence: Evidence, item: ClusterObject) -> bool:
    """Whether no scheduler has said anything about a pod of the cluster; one of a manifest has no uid."""
    return bool(item.uid) and not find_condition(item.data, "PodScheduled") and not evidence.events_of(item)


def _of_scheduler(evidence: Evidence, kind: str, name: str) -> list[ClusterObject]:
    """Objects of the scheduler itself: a tenant may give its own any name, but namespaces are made by administrators.

    What lives in a namespace of the system or of the scheduler's name counts alone, where there is any. Elsewhere, a
    namespace with pods that name the scheduler is a tenant's, since a scheduler is not placed by itself.
    """
    own = OTHER_NAMES.get(name, name)
    found = [item for item in evidence.of_kind(kind) if _has_name(item, own)]
    trusted = [item for item in found if _is_trusted(item, own)]
    tenants = _users(evidence).get(name, frozenset())
    others = [item for item in found if name not in OTHER_NAMES and item.namespace not in tenants]
    return trusted or others


def _has_name(item: ClusterObject, own: str) -> bool:
    is_exact = item.kind == "Lease" and item.name == own
    return is_exact or ("schedul" in item.name and (own in item.name or own in item.namespace))


def _is_trusted(item: ClusterObject, own: str) -> bool:
    namespace = item.namespace
    return namespace.startswith(SYSTEM_PREFIXES) or namespace.endswith(SYSTEM_SUFFIX) or own in namespace


SYSTEM_PREFIXES = ("kube-", "openshift-")
"""Prefixes of namespaces that Kubernetes and OpenShift keep for themselves."""
SYSTEM_SUFFIX = "-system"
"""How charts of controllers call the namespace that they are installed in."""


def _unproven(name: str, item: ClusterObject) -> tuple[MissingEvidence, ...]:
    """What would show that the object is the scheduler's, if its namespace does not."""
    if _is_trusted(item, OTHER_NAMES.get(name, name)):
        return ()
    what = f"whether namespace {item.namespace} is that of the scheduler"
    return (MissingEvidence(what, f"kubectl get clusterrolebindings -o wide | grep {item.namespace}/"),)


@once_per_evidence
def _users(evidence: Evidence) -> dict[str, frozenset[str]]:
    """Scheduler → namespaces with pods that name it; static pods keep the default in their spec."""
    found: dict[str, set[str]] = {}
    for pod in evidence.of_kind("Pod"):
        name = nested_string(pod.data, "spec", "schedulerName")
        if name and name != DEFAULT_SCHEDULERS[0]:
            found.setdefault(name, set()).add(pod.namespace)
    return {name: frozenset(namespaces) for name, namespaces in found.items()}


def _has_placed(evidence: Evidence, name: str) -> bool:
    """Whether a pod that names the scheduler has a node."""
    return any(
        nested_string(pod.data, "spec", "schedulerName") == name and node_of(pod) for pod in evidence.of_kind("Pod")
    )


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
        (*said, *_stale_lease(evidence, name, now)),
        remedy=f"repair the scheduler ({logs})",
        missing=_unproven(name, pod),
    )


def _stale_lease(evidence: Evidence, name: str, now: int) -> tuple[str, ...]:
    """That the scheduler's Leases were all renewed too long ago; empty if one is fresh, or if none is known."""
    leases = _of_scheduler(evidence, "Lease", name)
    renewed = [nested_string(lease.data, "spec", "renewTime") for lease in leases]
    newest = max(renewed, default="")
    age = now - parse_timestamp(newest) if newest else 0
    if age < DECIDES_WITHIN:
        return ()
    return (f"{leases[renewed.index(newest)].title} was renewed {format_duration(age)} ago",)


def _is_heard_of(evidence: Evidence, name: str, item: ClusterObject | None) -> bool:
    """Whether it has spoken about the pod or placed another, or a Lease, a pod or a namespace has its name."""
    if item is not None and (find_condition(item.data, "PodScheduled") or latest_words(evidence, item)):
        return True
    tenants = _users(evidence).get(name, frozenset())
    others = [row for kind in ("Lease", "Pod") for row in evidence.of_kind(kind) if row.namespace not in tenants]
    return _has_placed(evidence, name) or any(name in row.name or row.namespace == name for row in others)
