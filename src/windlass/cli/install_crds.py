"""The kinds that `windlass install` brings: the queue API where nobody else has it, and our own two.

Names and fields of `kueue.x-k8s.io` are Kueue's interface (Apache-2.0). Both versions are served from one schema that
knows the spellings of both, so nothing is pruned and no conversion webhook is needed; the model reads either.
"""

from __future__ import annotations

from typing import Any

from windlass.cli.install_schema import (
    Schema,
    anything,
    choice,
    conditions,
    flag,
    listed,
    mapped,
    name,
    number,
    quantity,
    record,
    selector,
    text,
    time,
)

KUEUE = "kueue.x-k8s.io"
MANAGED = {"app.kubernetes.io/managed-by": "windlass", "app.kubernetes.io/part-of": "windlass"}
STOP = choice("None", "Hold", "HoldAndDrain")
FAIR = record({"weight": quantity()})


def crds() -> list[dict[str, Any]]:
    kueue = ("v1beta2", "v1beta1")
    return [
        _crd(KUEUE, kueue, "ClusterQueue", "clusterqueues", _cluster_queue(), ("cq",), namespaced=False),
        _crd(KUEUE, kueue, "LocalQueue", "localqueues", _local_queue(), ("queue", "queues", "lq")),
        _crd(KUEUE, kueue, "Cohort", "cohorts", _cohort(), (), namespaced=False),
        _crd(
            KUEUE,
            kueue,
            "ResourceFlavor",
            "resourceflavors",
            _flavor(),
            ("flavor", "flavors", "rf"),
            namespaced=False,
        ),
        _crd(KUEUE, kueue, "Topology", "topologies", _topology(), (), namespaced=False),
        _crd(KUEUE, kueue, "Workload", "workloads", _workload(), ("wl",)),
        _crd(
            KUEUE,
            kueue,
            "WorkloadPriorityClass",
            "workloadpriorityclasses",
            {"value": number(-(2**31), 2**31 - 1), "description": text(most=1024)},
            (),
            namespaced=False,
            required=("value",),
        ),
        _crd(
            "windlass.dev",
            ("v1",),
            "Reservation",
            "reservations",
            _reservation(),
            (),
            namespaced=False,
            required=("spec",),
        ),
        _crd("windlass.dev", ("v1",), "RunTimeHistory", "runtimehistories", _run_times(), ()),
    ]


def _crd(
    group: str,
    versions: tuple[str, ...],
    kind: str,
    plural: str,
    fields: dict[str, Schema],
    short: tuple[str, ...],
    *,
    namespaced: bool = True,
    required: tuple[str, ...] = (),
) -> dict[str, Any]:
    schema = record(
        {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            **fields,
        },
        *required,
    )
    served = [
        {
            "name": version,
            "served": True,
            "storage": position == 0,
            "schema": {"openAPIV3Schema": schema},
            **({"subresources": {"status": {}}} if "status" in fields else {}),
        }
        for position, version in enumerate(versions)
    ]
    names = {"kind": kind, "listKind": f"{kind}List", "plural": plural, "singular": kind.lower()}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}", "labels": dict(MANAGED)},
        "spec": {
            "group": group,
            "names": {**names, **({"shortNames": list(short)} if short else {})},
            "scope": "Namespaced" if namespaced else "Cluster",
            "versions": served,
        },
    }


def _resource_groups() -> Schema:
    quota = record(
        {
            "name": text(),
            "nominalQuota": quantity(),
            "borrowingLimit": {**quantity(), "nullable": True},
            "lendingLimit": {**quantity(), "nullable": True},
        },
        "name",
        "nominalQuota",
    )
    flavor = record(
        {"name": name(), "resources": listed(quota, 64, least=1, keys=("name",))}, "name", "resources"
    )
    group = record(
        {
            "coveredResources": listed(text(), 64, least=1),
            "flavors": listed(flavor, 64, least=1, keys=("name",)),
        },
        "coveredResources",
        "flavors",
    )
    return listed(group, 16)


def _usage(inner: str = "total") -> Schema:
    resource = record({"name": text(), inner: quantity(), "borrowed": quantity()}, "name")
    return listed(record({"name": text(), "resources": listed(resource, 64)}, "name"), 256)


def _cluster_queue() -> dict[str, Schema]:
    never = ("Never", "LowerPriority")
    spec = record(
        {
            "resourceGroups": _resource_groups(),
            "cohort": name(),
            "cohortName": name(),
            "queueingStrategy": choice("StrictFIFO", "BestEffortFIFO"),
            "namespaceSelector": selector(),
            "flavorFungibility": record(
                {
                    "whenCanBorrow": choice("MayStopSearch", "TryNextFlavor", "Borrow"),
                    "whenCanPreempt": choice("MayStopSearch", "TryNextFlavor", "Preempt"),
                    "preference": choice("BorrowingOverPreemption", "PreemptionOverBorrowing"),
                }
            ),
            "preemption": record(
                {
                    "reclaimWithinCohort": choice(*never, "Any"),
                    "withinClusterQueue": choice(*never, "LowerOrNewerEqualPriority"),
                    "borrowWithinCohort": record(
                        {"policy": choice(*never), "maxPriorityThreshold": {**number(), "nullable": True}}
                    ),
                }
            ),
            "admissionChecks": listed(name(), 64),
            "admissionChecksStrategy": anything(),
            "stopPolicy": STOP,
            "fairSharing": FAIR,
            "admissionScope": record(
                {"admissionMode": choice("UsageBasedAdmissionFairSharing", "NoAdmissionFairSharing")},
                "admissionMode",
            ),
            "concurrentAdmissionPolicy": anything(),
        }
    )
    status = record(
        {
            "conditions": conditions(),
            "flavorsReservation": _usage(),
            "flavorsUsage": _usage(),
            "pendingWorkloads": number(0),
            "reservingWorkloads": number(0),
            "admittedWorkloads": number(0),
            "fairSharing": anything(),
        }
    )
    return {"spec": spec, "status": status}


def _local_queue() -> dict[str, Schema]:
    queue = {
        **name(),
        "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "field is immutable"}],
    }
    spec = record({"clusterQueue": queue, "stopPolicy": STOP, "fairSharing": FAIR})
    status = record(
        {
            "conditions": conditions(),
            "pendingWorkloads": number(0),
            "reservingWorkloads": number(0),
            "admittedWorkloads": number(0),
            "flavorsReservation": _usage(),
            "flavorsUsage": _usage(),
            "flavorUsage": _usage(),
            "fairSharing": anything(),
        }
    )
    return {"spec": spec, "status": status}


def _cohort() -> dict[str, Schema]:
    spec = record(
        {"parentName": name(), "parent": name(), "resourceGroups": _resource_groups(), "fairSharing": FAIR}
    )
    return {"spec": spec, "status": record({"fairSharing": anything()})}


def _flavor() -> dict[str, Schema]:
    effect = choice("NoSchedule", "PreferNoSchedule", "NoExecute")
    taint = record(
        {"key": text(most=317), "value": text(most=63), "effect": effect, "timeAdded": time()},
        "key",
        "effect",
    )
    toleration = record(
        {
            "key": text(most=317),
            "operator": choice("Exists", "Equal", "Lt", "Gt"),
            "value": text(most=63),
            "effect": effect,
            "tolerationSeconds": {**number(), "nullable": True},
        }
    )
    spec = record(
        {
            "nodeLabels": mapped(text(most=63), 8),
            "nodeTaints": listed(taint, 8),
            "tolerations": listed(toleration, 8),
            "topologyName": name(),
        }
    )
    return {"spec": spec}


def _topology() -> dict[str, Schema]:
    level = record({"nodeLabel": text(most=316)}, "nodeLabel")
    return {"spec": record({"levels": listed(level, 16, least=1)}, "levels")}


def _workload() -> dict[str, Schema]:
    pod_set = record(
        {
            "name": name(most=63),
            "count": number(0, 1_000_000),
            "minCount": {**number(1, 1_000_000), "nullable": True},
            "template": anything(),
            "topologyRequest": anything(),
        },
        "count",
        "template",
    )
    spec = record(
        {
            "podSets": listed(pod_set, 18, least=1),
            "queueName": name(),
            "priority": {**number(), "nullable": True},
            "priorityClassName": text(),
            "priorityClassSource": text(),
            "priorityClassRef": record({"group": text(), "kind": text(), "name": text()}),
            "active": flag(),
            "maximumExecutionTimeSeconds": {**number(1), "nullable": True},
            "preemptionGates": listed(record({"name": text()}), 16),
        }
    )
    assignment = record(
        {
            "name": name(most=63),
            "flavors": mapped(text()),
            "resourceUsage": mapped(quantity()),
            "count": number(0),
            "topologyAssignment": anything(),
            "delayedTopologyRequest": text(),
        }
    )
    admission = {
        **record({"clusterQueue": name(), "podSetAssignments": listed(assignment, 18)}, "clusterQueue"),
        "nullable": True,
    }
    eviction = record({"reason": text(), "underlyingCause": text(), "count": number(0)})
    status = record(
        {
            "admission": admission,
            "conditions": conditions(),
            "requeueState": {**anything(), "nullable": True},
            "reclaimablePods": listed(record({"name": text(), "count": number(0)}), 18),
            "admissionChecks": listed(anything(), 64),
            "resourceRequests": listed(anything(), 18),
            "schedulingStats": record({"evictions": listed(eviction, 64)}),
            "unhealthyNodes": listed(record({"name": text()}), 8),
            "accumulatedPastExecutionTimeSeconds": number(0),
            "accumulatedPastExexcutionTimeSeconds": number(0),
            "nominatedClusterNames": listed(text(), 64),
            "clusterName": text(),
            "preemptionGates": listed(anything(), 16),
        }
    )
    return {"spec": spec, "status": status}


def _run_times() -> dict[str, Schema]:
    period = record({"from": time(), "runs": mapped(number(0), 256)}, "from")
    return {"periods": listed(period, 16)}


def _reservation() -> dict[str, Schema]:
    who = record(
        {
            "namespaces": listed(name(), 256),
            "queues": listed(text(most=510), 256),
            "labels": mapped(text(most=63)),
        }
    )
    spec = record(
        {
            "from": time(),
            "until": time(),
            "who": who,
            "gpus": number(1, 100_000),
            "count": number(1, 100_000),
            "resources": mapped(quantity()),
            "nodeSelector": mapped(text(most=63)),
            "topology": text(most=316),
            "tolerations": listed(anything(), 64),
        },
        "from",
        "until",
        "who",
    )
    return {"spec": spec, "status": record({"nodes": mapped(number(0))})}
