"""The kinds that `windlass install` brings: the queue API where nobody else has it, and our own two.

Names and fields of `kueue.x-k8s.io` are Kueue's interface (Apache-2.0). Both versions are served from one schema that
knows the spellings of both, so nothing is pruned and no conversion webhook is needed; the model reads either.
"""

from __future__ import annotations

from typing import Any

from windlass import __version__
from windlass.cli.openapi_schema import (
    Schema,
    array,
    boolean,
    conditions,
    date_time,
    enum,
    integer,
    label_selector,
    map_of,
    name,
    nullable,
    object_schema,
    preserve_unknown_fields,
    quantity,
    string,
)
from windlass.model.names.kubernetes import APP_MANAGED_BY_LABEL

KUEUE = "kueue.x-k8s.io"
MANAGED_LABELS = {APP_MANAGED_BY_LABEL: "windlass", "app.kubernetes.io/part-of": "windlass"}
_FLAVOR_NAMES = ("flavor", "flavors", "rf")
STOP_POLICY = enum("None", "Hold", "HoldAndDrain")
FAIR_SHARING = object_schema(weight=quantity())
QUEUE_API_ANNOTATION = "windlass.dev/queue-api"
QUEUE_API = f"kueue-v0.18, windlass-{__version__}"
"""Whose interface the CRDs of the queue API follow, and which release of Windlass wrote them."""
Column = tuple[str, str, str]
"""Heading, JSON path, type; in `kubectl get -o wide` alone if the heading ends with `+`."""
AGE: Column = ("Age", ".metadata.creationTimestamp", "date")
_COUNTS: tuple[Column, ...] = (("Pending Workloads", ".status.pendingWorkloads", "integer"),)
_COLUMNS: dict[str, tuple[Column, ...]] = {
    "ClusterQueue": (
        ("Cohort", ".spec.cohortName", "string"),
        ("Strategy+", ".spec.queueingStrategy", "string"),
        *_COUNTS,
        ("Admitted Workloads+", ".status.admittedWorkloads", "integer"),
    ),
    "LocalQueue": (
        ("ClusterQueue", ".spec.clusterQueue", "string"),
        *_COUNTS,
        ("Admitted Workloads", ".status.admittedWorkloads", "integer"),
    ),
    "Workload": (
        ("Queue", ".spec.queueName", "string"),
        ("Reserved in", ".status.admission.clusterQueue", "string"),
        ("Admitted", ".status.conditions[?(@.type=='Admitted')].status", "string"),
        ("Finished", ".status.conditions[?(@.type=='Finished')].status", "string"),
        AGE,
    ),
    "WorkloadPriorityClass": (("Value", ".value", "integer"),),
    "Cohort": (("Parent", ".spec.parentName", "string"), AGE),
    "ResourceFlavor": (("Topology", ".spec.topologyName", "string"), AGE),
    "Reservation": (
        ("From", ".spec.from", "string"),
        ("Until", ".spec.until", "string"),
        ("GPUs", ".spec.gpus", "integer"),
        AGE,
    ),
}
"""What `kubectl get` shows of each kind: for Kueue's, as in its own CRDs, which have none for cohorts and flavors."""
_OLD_PATHS = {".spec.cohortName": ".spec.cohort", ".spec.parentName": ".spec.parent"}
"""In v1beta1."""


def crds() -> list[dict[str, Any]]:
    queue, own = (KUEUE, ("v1beta2", "v1beta1")), ("windlass.dev", ("v1",))
    return [
        make_crd(*queue, "ClusterQueue", "clusterqueues", _cluster_queue(), ("cq",), namespaced=False),
        make_crd(*queue, "LocalQueue", "localqueues", _local_queue(), ("queue", "queues", "lq")),
        make_crd(*queue, "Cohort", "cohorts", _cohort(), namespaced=False),
        make_crd(*queue, "ResourceFlavor", "resourceflavors", _flavor(), _FLAVOR_NAMES, namespaced=False),
        make_crd(*queue, "Topology", "topologies", _topology(), namespaced=False),
        make_crd(*queue, "Workload", "workloads", _workload(), ("wl",)),
        make_crd(
            *(*queue, "WorkloadPriorityClass", "workloadpriorityclasses", _priority_class()),
            namespaced=False,
            required="value",
        ),
        make_crd(*own, "Reservation", "reservations", _reservation(), namespaced=False, required="spec"),
        make_crd(*own, "RunTimeHistory", "runtimehistories", _run_times()),
    ]


def make_crd(
    group: str,
    versions: tuple[str, ...],
    kind: str,
    plural: str,
    fields: dict[str, Schema],
    short: tuple[str, ...] = (),
    *,
    namespaced: bool = True,
    required: str = "",
    columns: tuple[Column, ...] = (),
) -> dict[str, Any]:
    schema = object_schema(
        required,
        apiVersion={"type": "string"},
        kind={"type": "string"},
        metadata={"type": "object"},
        **fields,
    )
    served = [
        {
            "name": version,
            "served": True,
            "storage": position == 0,
            "schema": {"openAPIV3Schema": schema},
            "additionalPrinterColumns": _columns(columns or _COLUMNS.get(kind, (AGE,)), version),
            **({"subresources": {"status": {}}} if "status" in fields else {}),
        }
        for position, version in enumerate(versions)
    ]
    names = {"kind": kind, "listKind": f"{kind}List", "plural": plural, "singular": kind.lower()}
    metadata: dict[str, Any] = {"name": f"{plural}.{group}", "labels": dict(MANAGED_LABELS)}
    if group == KUEUE:
        metadata["annotations"] = {QUEUE_API_ANNOTATION: QUEUE_API}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": metadata,
        "spec": {
            "group": group,
            "names": {**names, **({"shortNames": list(short)} if short else {})},
            "scope": "Namespaced" if namespaced else "Cluster",
            "versions": served,
        },
    }


def _columns(columns: tuple[Column, ...], version: str) -> list[dict[str, Any]]:
    found = []
    for heading, path, column_type in columns:
        path = _OLD_PATHS.get(path, path) if version == "v1beta1" else path
        column = {"name": heading.removesuffix("+"), "type": column_type, "jsonPath": path}
        found.append({**column, "priority": 1} if heading.endswith("+") else column)
    return found


def _resource_groups() -> Schema:
    quota = object_schema(
        "name nominalQuota",
        name=string(),
        nominalQuota=quantity(),
        borrowingLimit=nullable(quantity()),
        lendingLimit=nullable(quantity()),
    )
    flavor = object_schema("name resources", name=name(), resources=array(quota, 64, min_items=1, map_keys=("name",)))
    group = object_schema(
        "coveredResources flavors",
        coveredResources=array(string(), 64, min_items=1),
        flavors=array(flavor, 64, min_items=1, map_keys=("name",)),
    )
    return array(group, 16)


def _usage(inner: str = "total") -> Schema:
    resource = object_schema("name", name=string(), **{inner: quantity()}, borrowed=quantity())
    return array(object_schema("name", name=string(), resources=array(resource, 64)), 256)


def _cluster_queue() -> dict[str, Schema]:
    never = ("Never", "LowerPriority")
    spec = object_schema(
        resourceGroups=_resource_groups(),
        cohort=name(),
        cohortName=name(),
        queueingStrategy=enum("StrictFIFO", "BestEffortFIFO"),
        namespaceSelector=label_selector(),
        flavorFungibility=object_schema(
            whenCanBorrow=enum("MayStopSearch", "TryNextFlavor", "Borrow"),
            whenCanPreempt=enum("MayStopSearch", "TryNextFlavor", "Preempt"),
            preference=enum("BorrowingOverPreemption", "PreemptionOverBorrowing"),
        ),
        preemption=object_schema(
            reclaimWithinCohort=enum(*never, "Any"),
            withinClusterQueue=enum(*never, "LowerOrNewerEqualPriority"),
            borrowWithinCohort=object_schema(policy=enum(*never), maxPriorityThreshold=nullable(integer())),
        ),
        admissionChecks=array(name(), 64),
        admissionChecksStrategy=preserve_unknown_fields(),
        stopPolicy=STOP_POLICY,
        fairSharing=FAIR_SHARING,
        admissionScope=object_schema(
            "admissionMode", admissionMode=enum("UsageBasedAdmissionFairSharing", "NoAdmissionFairSharing")
        ),
        concurrentAdmissionPolicy=preserve_unknown_fields(),
    )
    status = object_schema(
        conditions=conditions(),
        flavorsReservation=_usage(),
        flavorsUsage=_usage(),
        pendingWorkloads=integer(0),
        reservingWorkloads=integer(0),
        admittedWorkloads=integer(0),
        fairSharing=preserve_unknown_fields(),
    )
    return {"spec": spec, "status": status}


def _local_queue() -> dict[str, Schema]:
    queue = {
        **name(),
        "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "field is immutable"}],
    }
    spec = object_schema(clusterQueue=queue, stopPolicy=STOP_POLICY, fairSharing=FAIR_SHARING)
    status = object_schema(
        conditions=conditions(),
        pendingWorkloads=integer(0),
        reservingWorkloads=integer(0),
        admittedWorkloads=integer(0),
        flavorsReservation=_usage(),
        flavorsUsage=_usage(),
        flavorUsage=_usage(),
        fairSharing=preserve_unknown_fields(),
    )
    return {"spec": spec, "status": status}


def _cohort() -> dict[str, Schema]:
    spec = object_schema(parentName=name(), parent=name(), resourceGroups=_resource_groups(), fairSharing=FAIR_SHARING)
    return {"spec": spec, "status": object_schema(fairSharing=preserve_unknown_fields())}


def _flavor() -> dict[str, Schema]:
    effect = enum("NoSchedule", "PreferNoSchedule", "NoExecute")
    taint = object_schema(
        "key effect",
        key=string(max_length=317),
        value=string(max_length=63),
        effect=effect,
        timeAdded=date_time(),
    )
    toleration = object_schema(
        key=string(max_length=317),
        operator=enum("Exists", "Equal", "Lt", "Gt"),
        value=string(max_length=63),
        effect=effect,
        tolerationSeconds=nullable(integer()),
    )
    spec = object_schema(
        nodeLabels=map_of(string(max_length=63), 8),
        nodeTaints=array(taint, 8),
        tolerations=array(toleration, 8),
        topologyName=name(),
    )
    return {"spec": spec}


def _topology() -> dict[str, Schema]:
    level = object_schema("nodeLabel", nodeLabel=string(max_length=316))
    return {"spec": object_schema("levels", levels=array(level, 16, min_items=1))}


def _priority_class() -> dict[str, Schema]:
    return {"value": integer(-(2**31), 2**31 - 1), "description": string(max_length=1024)}


def _workload() -> dict[str, Schema]:
    return {"spec": _workload_spec(), "status": _workload_status()}


def _workload_spec() -> Schema:
    pod_set = object_schema(
        "count template",
        name=name(max_length=63),
        count=integer(0, 1_000_000),
        minCount=nullable(integer(1, 1_000_000)),
        template=preserve_unknown_fields(),
        topologyRequest=preserve_unknown_fields(),
    )
    return object_schema(
        podSets=array(pod_set, 18, min_items=1),
        queueName=name(),
        priority=nullable(integer()),
        priorityClassName=string(),
        priorityClassSource=string(),
        priorityClassRef=object_schema(group=string(), kind=string(), name=string()),
        active=boolean(),
        maximumExecutionTimeSeconds=nullable(integer(1)),
        preemptionGates=array(object_schema(name=string()), 16),
    )


def _workload_status() -> Schema:
    assignment = object_schema(
        name=name(max_length=63),
        flavors=map_of(string()),
        resourceUsage=map_of(quantity()),
        count=integer(0),
        topologyAssignment=preserve_unknown_fields(),
        delayedTopologyRequest=string(),
    )
    admission = nullable(object_schema("clusterQueue", clusterQueue=name(), podSetAssignments=array(assignment, 18)))
    eviction = object_schema(reason=string(), underlyingCause=string(), count=integer(0))
    return object_schema(
        admission=admission,
        conditions=conditions(),
        requeueState=nullable(preserve_unknown_fields()),
        reclaimablePods=array(object_schema(name=string(), count=integer(0)), 18),
        admissionChecks=array(preserve_unknown_fields(), 64),
        resourceRequests=array(preserve_unknown_fields(), 18),
        schedulingStats=object_schema(evictions=array(eviction, 64)),
        unhealthyNodes=array(object_schema(name=string()), 8),
        accumulatedPastExecutionTimeSeconds=integer(0),
        accumulatedPastExexcutionTimeSeconds=integer(0),
        nominatedClusterNames=array(string(), 64),
        clusterName=string(),
        preemptionGates=array(preserve_unknown_fields(), 16),
    )


def _run_times() -> dict[str, Schema]:
    period = object_schema("from", **{"from": date_time()}, runs=map_of(integer(0), 256))
    shape = object_schema("shape", shape=string(max_length=1024), periods=array(period, 16))
    return {"periods": array(period, 16), "shapes": array(shape, 64)}


def _reservation() -> dict[str, Schema]:
    who = object_schema(
        namespaces=array(name(), 256),
        queues=array(string(max_length=510), 256),
        labels=map_of(string(max_length=63)),
    )
    spec = object_schema(
        "from until who",
        **{"from": date_time()},
        until=date_time(),
        who=who,
        gpus=integer(1, 100_000),
        count=integer(1, 100_000),
        resources=map_of(quantity()),
        nodeSelector=map_of(string(max_length=63)),
        topology=string(max_length=316),
        tolerations=array(preserve_unknown_fields(), 64),
    )
    spec["x-kubernetes-validations"] = [{"rule": "self.until > self.from", "message": "until must be after from"}]
    return {"spec": spec, "status": object_schema(nodes=map_of(integer(0)))}
