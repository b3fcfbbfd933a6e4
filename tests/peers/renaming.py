"""Other names for all objects of a case, everywhere they are named: in references and in the expectations.

Labels keep their values, node names change: in the cases a topology domain is a label's value, which needn't be the
node's name. Feeds `variants`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import Any

from tests.peers.scorers import Json

QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
GROUP_LABELS = ("scheduling.x-k8s.io/pod-group", "kueue.x-k8s.io/pod-group-name")
NAMESPACE_LABEL = "kubernetes.io/metadata.name"
LETTERS = "abcdefghijklmnopqrstuvwxyz"
OWNED_BY_NAMESPACE = ("LocalQueue", "Workload", "PodGroup", "Pod", "LimitRange")


class Names:
    """Old name → new name, by kind; UIDs change as well."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._new: dict[tuple[str, str], str] = {}
        self._taken: set[str] = set()

    def __call__(self, kind: str, old: str) -> str:
        if not old:
            return old
        found = self._new.get((kind, old))
        if found is None:
            found = self._fresh()
            self._new[kind, old] = found
        return found

    def _fresh(self) -> str:
        while True:
            name = "".join(self._chance.choices(LETTERS, k=6))
            if name not in self._taken:
                self._taken.add(name)
                return name

    def key(self, kind: str, old: str) -> str:
        """`namespace/name`."""
        namespace, _, name = old.partition("/")
        return f"{self('Namespace', namespace)}/{self(kind, name)}"


def rename_object(item: Json, names: Names) -> None:
    """In place."""
    kind, metadata = item["kind"], item["metadata"]
    metadata["name"] = names(kind, metadata["name"])
    if "uid" in metadata:
        metadata["uid"] = names("uid", metadata["uid"])
    if "namespace" in metadata:
        metadata["namespace"] = names("Namespace", metadata["namespace"])
    labels = metadata.get("labels") or {}
    _change(labels, NAMESPACE_LABEL, lambda old: names("Namespace", old))
    _change(labels, QUEUE_LABEL, lambda old: names("LocalQueue", old))
    for label in GROUP_LABELS:
        _change(labels, label, lambda old: names("PodGroup", old))
    for owner in metadata.get("ownerReferences") or []:
        owner["name"] = names(owner["kind"], owner["name"])
        owner["uid"] = names("uid", owner["uid"])
    rename = _BY_KIND.get(kind)
    if rename is not None:
        rename(item, names)


def _change(holder: Json, field: str, new: Callable[[str], str]) -> None:
    if holder.get(field):
        holder[field] = new(holder[field])


def _queue(item: Json, names: Names) -> None:
    spec = item["spec"]
    for field in ("cohort", "cohortName"):
        _change(spec, field, lambda old: names("Cohort", old))
    _flavors_of_groups(spec, names)
    for check in (spec.get("admissionChecksStrategy") or {}).get("admissionChecks") or []:
        check["name"] = names("AdmissionCheck", check["name"])
        check["onFlavors"] = [names("ResourceFlavor", old) for old in check.get("onFlavors") or []]


def _cohort(item: Json, names: Names) -> None:
    spec = item.get("spec") or {}
    for field in ("parent", "parentName"):
        _change(spec, field, lambda old: names("Cohort", old))
    _flavors_of_groups(spec, names)


def _flavors_of_groups(spec: Json, names: Names) -> None:
    for group in spec.get("resourceGroups") or []:
        for flavor in group["flavors"]:
            flavor["name"] = names("ResourceFlavor", flavor["name"])


def _local_queue(item: Json, names: Names) -> None:
    _change(item["spec"], "clusterQueue", lambda old: names("ClusterQueue", old))


def _flavor(item: Json, names: Names) -> None:
    _change(item.get("spec") or {}, "topologyName", lambda old: names("Topology", old))


def _pod(item: Json, names: Names) -> None:
    _change(item["spec"], "nodeName", lambda old: names("Node", old))
    _change(item["spec"], "priorityClassName", lambda old: names("PriorityClass", old))


def _workload(item: Json, names: Names) -> None:
    _change(item["spec"], "queueName", lambda old: names("LocalQueue", old))
    admission = (item.get("status") or {}).get("admission")
    if admission:
        admission["clusterQueue"] = names("ClusterQueue", admission["clusterQueue"])
        for part in admission["podSetAssignments"]:
            _values(part.get("flavors"), lambda old: names("ResourceFlavor", old))
    for check in (item.get("status") or {}).get("admissionChecks") or []:
        check["name"] = names("AdmissionCheck", check["name"])


def _values(holder: Json | None, new: Callable[[str], str]) -> None:
    for field, old in (holder or {}).items():
        holder[field] = new(old)  # type: ignore[index]  # an empty one is not entered


_BY_KIND: dict[str, Callable[[Json, Names], None]] = {
    "ClusterQueue": _queue,
    "Cohort": _cohort,
    "LocalQueue": _local_queue,
    "ResourceFlavor": _flavor,
    "Pod": _pod,
    "Workload": _workload,
}


def rename_kueue_expectation(spec: Json, names: Names) -> None:
    def keys(old: Iterable[str]) -> list[str]:
        return [names.key("Workload", one) for one in old]

    for outcome in [spec["expect"], *(spec.get("alternatives") or [])]:
        outcome["held"] = keys(outcome.get("held") or [])
        for one in [*(outcome.get("admitted") or []), *(outcome.get("evicted") or [])]:
            one["workload"] = names.key("Workload", one["workload"])
            for part in one.get("podSets") or []:
                _values(part.get("flavors"), lambda old: names("ResourceFlavor", old))
                if part.get("nodes"):
                    part["nodes"] = {names("Node", old): count for old, count in part["nodes"].items()}
    for field in ("preemptors", "unscored", "already_evicting"):
        if field in spec:
            spec[field] = keys(spec[field])
    if "interchangeable" in spec:
        spec["interchangeable"] = [keys(group) for group in spec["interchangeable"]]


def rename_kai_expectation(spec: Json, names: Names) -> None:
    expect = spec["expect"]

    def pods(old: Iterable[str]) -> list[str]:
        return [names.key("Pod", one) for one in old]

    def groups(old: Iterable[str]) -> list[str]:
        return [names.key("PodGroup", one) for one in old]

    def either(item: Any) -> Any:
        if isinstance(item, str):
            return names.key("Pod", item)
        return _in_groups(item, groups, pods)

    expect["placed"] = {
        names.key("Pod", pod): names("Node", node) if node else node
        for pod, node in (expect.get("placed") or {}).items()
    }
    for field in ("gangs_running", "gangs_waiting"):
        expect[field] = groups(expect.get(field) or [])
    expect["kept"] = pods(expect.get("kept") or [])
    if "evicted" in expect:
        expect["evicted"] = [either(item) for item in expect["evicted"]]
    if "evicted_any_of" in expect:
        expect["evicted_any_of"] = [pods(option) for option in expect["evicted_any_of"]]
    for field in ("same_domain", "at_most_domains"):
        if field in expect:
            expect[field] = [_in_groups(rule, groups, pods) for rule in expect[field]]


def _in_groups(
    item: Json, groups: Callable[[Iterable[str]], list[str]], pods: Callable[[Iterable[str]], list[str]]
) -> Json:
    changed = dict(item)
    if "group" in item:
        changed["group"] = groups([item["group"]])[0]
    if "groups" in item:
        changed["groups"] = groups(item["groups"])
    if "pods" in item:
        changed["pods"] = pods(item["pods"])
    return changed
