"""Owners of the kinds that a queue stops and starts, as manifests; and a loop that plays their controllers.

Shared by the tests of admission and of rights: the projects' own controllers are not here, only their kinds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tests.live.scenes import pod
from tests.real_cluster.api import Api, Object, until

from windlass.apply.owners import SUSPEND_FIELDS
from windlass.kube.resources import WATCHED_KINDS

QUEUE = "kueue.x-k8s.io/queue-name"
LWS_NAME = "leaderworkerset.sigs.k8s.io/name"
GROUP_INDEX = "leaderworkerset.sigs.k8s.io/group-index"
WORKER_INDEX = "leaderworkerset.sigs.k8s.io/worker-index"
GATE = "kueue.x-k8s.io/admission"


def template(gpus: int) -> Object:
    made = pod("x", gpus, restartPolicy="Never")
    if not gpus:
        del made["spec"]["containers"][0]["resources"]
    return {"metadata": {}, "spec": made["spec"]}


def owner(kind: str, name: str, spec: Object, queue: str = "main") -> Object:
    """Of the version that Windlass reads."""
    (known,) = [one for one in WATCHED_KINDS if one.kind == kind]
    version = f"{known.group}/{known.versions[0]}"
    labels = {QUEUE: queue} if queue else {}
    return {
        "apiVersion": version,
        "kind": kind,
        "metadata": {"name": name, "namespace": "default", "labels": labels},
        "spec": spec,
    }


def replica_specs(field: str, *roles: str) -> Object:
    """A Kubeflow job of one pod in each role."""
    specs = {role: {"replicas": 1, "template": template(1)} for role in roles}
    return {"runPolicy": {"suspend": True}, field: specs}


def ray_cluster() -> Object:
    workers = [{"groupName": "gpus", "replicas": 1, "template": template(1)}]
    return {"headGroupSpec": {"template": template(0)}, "workerGroupSpecs": workers}


def job_set(name: str, suspend: bool = True) -> Object:
    jobs = [
        {"name": role, "replicas": 1, "template": {"spec": {"parallelism": 1, "template": template(1)}}}
        for role in ("driver", "workers")
    ]
    return owner("JobSet", name, {"suspend": suspend, "replicatedJobs": jobs})


SPARK_POD = {
    "cores": 1,
    "memory": "512m",
    "gpu": {"name": "nvidia.com/gpu", "quantity": 1},
    "schedulerName": "windlass",
}


def wrapped_job() -> Object:
    inside = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "inside"},
        "spec": {"template": template(1)},
    }
    return {"template": inside}


def suspended_owners() -> list[Object]:
    """One of each kind that has a field to stop it, but for Job."""
    return [
        job_set("jobset"),
        owner("PyTorchJob", "pytorch", replica_specs("pytorchReplicaSpecs", "Master", "Worker")),
        owner("TFJob", "tf", replica_specs("tfReplicaSpecs", "Chief", "Worker")),
        owner("XGBoostJob", "xgboost", replica_specs("xgbReplicaSpecs", "Master", "Worker")),
        owner("PaddleJob", "paddle", replica_specs("paddleReplicaSpecs", "Master", "Worker")),
        owner("JAXJob", "jax", replica_specs("jaxReplicaSpecs", "Worker")),
        owner("MPIJob", "mpi", replica_specs("mpiReplicaSpecs", "Launcher", "Worker")),
        owner("RayJob", "rayjob", {"suspend": True, "submissionMode": "HTTPMode", "rayClusterSpec": ray_cluster()}),
        owner("RayCluster", "raycluster", {"suspend": True, **ray_cluster()}),
        owner("TrainJob", "train", {"suspend": True}),
        owner("AppWrapper", "wrapper", {"suspend": True, "components": [wrapped_job()]}),
        owner("SparkApplication", "spark", {"suspend": True, "driver": SPARK_POD, "executor": SPARK_POD}),
    ]


def crds_of_others() -> list[Object]:
    """Kinds of other projects with as little schema as there can be."""
    return [
        crd(one.kind, one.plural, one.group, one.versions[0])
        for one in WATCHED_KINDS
        if not one.required and one.group not in ("", "apps", "kueue.x-k8s.io", "windlass.dev", "scheduling.k8s.io")
    ]


def crd(kind: str, plural: str, group: str, version: str) -> Object:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    served = {"name": version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{plural}.{group}",
            "annotations": {"api-approved.kubernetes.io": "unapproved, for a test"},
        },
        "spec": {
            "group": group,
            "names": {"kind": kind, "plural": plural},
            "scope": "Namespaced" if kind != "Queue" else "Cluster",
            "versions": [served],
        },
    }


def install_kinds_of_others(api: Api) -> None:
    made = api.create(*crds_of_others())
    for one in made:
        path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{one['metadata']['name']}"
        until(lambda path=path: _established(api.get(path)), what=path)
        spec = one["spec"]
        where = f"/apis/{spec['group']}/{spec['versions'][0]['name']}/{spec['names']['plural']}"
        until(lambda where=where: api.exists(where), what=where)


def _established(found: Object) -> bool:
    conditions = found.get("status", {}).get("conditions") or ()
    return any(one["type"] == "Established" and one["status"] == "True" for one in conditions)


def is_suspended(one: Object) -> bool:
    found: Any = one
    for name in SUSPEND_FIELDS[one["kind"]]:
        found = found[name]
    return bool(found)


def pods_of(one: Object) -> list[Object]:
    """As its controller would make them: one for each role, with the controller's own labels."""
    return [_pod_of(one, role, gpus, labels) for role, gpus, labels in _roles(one)]


def _roles(one: Object) -> Iterator[tuple[str, int, dict[str, str]]]:
    kind, spec = one["kind"], one["spec"]
    if kind in ("JobSet", "TrainJob"):
        yield from ((role, 1, {"jobset.sigs.k8s.io/replicatedjob-name": role}) for role in ("driver", "workers"))
    elif kind in ("RayJob", "RayCluster"):
        yield "head", 0, {"ray.io/group": "headgroup"}
        yield "gpus", 1, {"ray.io/group": "gpus"}
    elif kind == "AppWrapper":
        yield "main", 1, {}
    elif kind == "SparkApplication":
        yield from ((role, 1, {"spark-role": role}) for role in ("driver", "executor"))
    else:
        (roles,) = [value for field, value in spec.items() if field.endswith("ReplicaSpecs")]
        yield from ((role.lower(), 1, {"training.kubeflow.org/replica-type": role.lower()}) for role in roles)


def _pod_of(one: Object, role: str, gpus: int, labels: dict[str, str]) -> Object:
    name = f"{one['metadata']['name']}-{role}"
    made = pod(name, gpus, labels=labels, ownerReferences=[reference(one)])
    return {**made, "spec": template(gpus)["spec"]}


def reference(one: Object) -> Object:
    meta = one["metadata"]
    found = {"apiVersion": one["apiVersion"], "kind": one["kind"], "name": meta["name"], "uid": meta["uid"]}
    return {**found, "controller": True}


def play_controllers(api: Api, owners: Sequence[Object]) -> None:
    """Once over all of them: what was let go gets its pods, what was stopped loses them."""
    for each in owners:
        one = api.get(api.path_of(each))
        names = {made["metadata"]["name"]: made for made in pods_of(one)}
        for name, made in names.items():
            path = f"/api/v1/namespaces/default/pods/{name}"
            there = api.exists(path)
            if there and is_suspended(one):
                api.delete(path, gracePeriodSeconds=0)
            elif not there and not is_suspended(one):
                api.create(made)
