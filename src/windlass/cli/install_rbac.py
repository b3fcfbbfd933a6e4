"""The rights of the live scheduler, as small as they can be: what it lists and watches, and what it writes.

`kube.resources` says what is read, `kube.write_requests` and `apply.owners` what is written;
`tests/live/test_live_rights.py` takes away one verb after the other, and each is missed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from windlass.apply.owners import patched_kinds
from windlass.dump.configuration import CONFIG_MAP_SUFFIX
from windlass.kube.freeze import FREEZE_CONFIG_MAP
from windlass.kube.resources import KUEUE_API_GROUP, WATCHED_KINDS

Rule = dict[str, Any]
READS = ("list", "watch")

WRITES: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    # Lifting gates of admitted pods, asks; victims whose budget yields to the owner of the quota that they borrow.
    ("", "pods", ("patch", "delete")),
    ("", "pods/binding", ("create",)),
    ("", "pods/status", ("patch",)),
    ("", "pods/eviction", ("create",)),
    ("", "persistentvolumeclaims", ("patch",)),  # selected-node
    ("", "persistentvolumes", ("patch",)),  # kept for a claim
    ("batch", "jobs/status", ("patch",)),  # the start time of a stopped Job, so that its template can be restored
    ("events.k8s.io", "events", ("create", "patch")),
    (KUEUE_API_GROUP, "workloads", ("create", "patch")),
    (KUEUE_API_GROUP, "workloads/status", ("patch",)),
    (KUEUE_API_GROUP, "clusterqueues/status", ("patch",)),
    (KUEUE_API_GROUP, "localqueues/status", ("patch",)),
    ("windlass.dev", "reservations/status", ("patch",)),
    ("windlass.dev", "runtimehistories", ("create", "patch")),
)
"""API group, resource, verbs."""
KUEUE_LEASE = "c1f6bfd2.kueue.x-k8s.io"
KUEUE_WEBHOOKS = "kueue-validating-webhook-configuration"


def cluster_rules() -> list[Rule]:
    """Of the ClusterRole."""
    reads: dict[str, list[str]] = {}
    for kind in WATCHED_KINDS:
        reads.setdefault(kind.group, []).append(kind.plural)
    rules = [rule(group, sorted(set(plurals)), READS) for group, plurals in sorted(reads.items())]
    rules += [rule(group, [resource], verbs) for group, resource, verbs in WRITES]
    owners: dict[str, list[str]] = {}
    for group, plural in patched_kinds([(kind.kind, kind.group, kind.plural) for kind in WATCHED_KINDS]):
        owners.setdefault(group, []).append(plural)
    rules += [rule(group, plurals, ("patch",)) for group, plurals in owners.items()]  # suspend, evictions
    return [
        *rules,
        rule("coordination.k8s.io", ["leases"], ("get",), [KUEUE_LEASE]),
        rule("admissionregistration.k8s.io", ["validatingwebhookconfigurations"], ("get",), [KUEUE_WEBHOOKS]),
    ]


def lease_rules(lease: str) -> list[Rule]:
    """Of the Role in its own namespace: to lead, and to publish its configuration.

    A name can't be demanded of what is posted; what is applied is created under the name in its address.
    """
    group = "coordination.k8s.io"
    return [
        rule(group, ["leases"], ("create",)),
        rule(group, ["leases"], ("get", "update"), [lease]),
        rule("", ["configmaps"], ("create", "patch"), [f"{lease}{CONFIG_MAP_SUFFIX}"]),
        freeze_rule(),
    ]


def freeze_rule() -> Rule:
    """Without it nothing is written: a role that can't read the brake must not move."""
    return rule("", ["configmaps"], ("get",), [FREEZE_CONFIG_MAP])


def rule(group: str, resources: Iterable[str], verbs: Iterable[str], names: Iterable[str] = ()) -> Rule:
    rule: Rule = {"apiGroups": [group], "resources": list(resources), "verbs": list(verbs)}
    return {**rule, "resourceNames": list(names)} if names else rule
