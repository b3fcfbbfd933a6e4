"""Random nodes and pods as plain manifests, for the comparison with kube-scheduler.

Used by `scene`. Alphabets are tiny, so that selectors match, taints are tolerated, ports collide and nodes fill up.
Everything is drawn from one `random.Random`, so that a printed seed brings a scene back.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from tests.real_cluster.api import Object

ZONE, HOST, RACK, GPUS = "topology.kubernetes.io/zone", "kubernetes.io/hostname", "rack", "gpus"
TOPOLOGY = (ZONE, HOST, RACK)
LABELS = (ZONE, RACK, GPUS, "disk")
VALUES = ("1", "2", "x")
EFFECTS = ("NoSchedule", "NoExecute", "PreferNoSchedule")
CORDON = "node.kubernetes.io/unschedulable"
CPU = ("0", "1m", "100m", "250m", "0.5", "1", "1500m")
MEMORY = ("0", "1", "64Mi", "100M", "0.5Gi", "1Gi", "1500Mi")
DISK = ("1Gi", "2Gi", "500M")
GPU, MIG, NIC = "nvidia.com/gpu", "nvidia.com/mig-1g.10gb", "example.com/nic"


class Draws:
    """Draws for one scene. `namespaces` are the names that terms may speak of; `comparing` allows Lt and Gt."""

    def __init__(self, random: Random, namespaces: Sequence[str], *, comparing: bool) -> None:
        self.random = random
        self.namespaces = list(namespaces)
        self.comparing = comparing
        self.crowded = self.sometimes(0.5)
        """Whether many small pods run everywhere, so that spread and affinity have something to count."""
        self.roomy = self.crowded or self.sometimes(0.3)
        """Whether nodes are large and open, so that rules between pods decide rather than room and taints."""
        self.device = GPU
        """What kind of device the containers of a pod ask for; a mixture in one pod is not supported."""

    def sometimes(self, share: float) -> bool:
        return self.random.random() < share

    def some(self, values: Sequence[Any], most: int = 2, least: int = 1) -> list[Any]:
        return self.random.sample(list(values), self.random.randint(least, min(most, len(values))))

    def one(self, values: Sequence[Any]) -> Any:
        return self.random.choice(values)

    # ---- nodes

    def node(self, name: str) -> Object:
        labels = {key: self.one(VALUES) for key in LABELS if self.sometimes(0.85)}
        if self.sometimes(0.95):
            labels[HOST] = name
        room = {
            "cpu": "40" if self.roomy else self.one(("2", "4", "7500m")),
            "memory": "80Gi" if self.roomy else self.one(("2Gi", "4Gi", "9000M")),
            "ephemeral-storage": self.one(("4Gi", "10Gi")),
            "pods": "110" if self.roomy else self.one(("3", "10", "30", "110")),
        }
        if self.sometimes(0.5):
            room[GPU] = self.one(("0", "1", "4", "8"))
            labels["nvidia.com/gpu.product"] = "NVIDIA-H100-80GB-HBM3"
            if self.sometimes(0.5):
                labels["nvidia.com/gpu.count"] = room[GPU]
        elif self.sometimes(0.4):
            room[MIG] = self.one(("7", "14"))
            labels |= {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", "nvidia.com/mig.strategy": "mixed"}
        if self.sometimes(0.3):
            room[NIC] = self.one(("1", "2"))
        spec: Object = {"taints": self.taints()} if self.sometimes(0.2 if self.roomy else 0.4) else {}
        if self.sometimes(0.08):
            spec["unschedulable"] = True
        ready = [{"type": "Ready", "status": "True"}]
        status = {"capacity": room, "allocatable": room, "conditions": ready}
        meta = {"name": name, "labels": labels}
        return {"apiVersion": "v1", "kind": "Node", "metadata": meta, "spec": spec, "status": status}

    def taints(self) -> list[Object]:
        pairs = self.some([(key, effect) for key in ("a", "b") for effect in EFFECTS], 3)
        return [{"key": k, "value": self.one(("", "1", "5", "word")), "effect": e} for k, e in pairs]

    # ---- pods

    def pod(self, namespace: str, name: str, claims: Sequence[str] = ()) -> Object:
        """A pod with a few of everything. Rules that narrow are rare enough that most pods fit somewhere."""
        self.device = self.one((GPU, GPU, MIG))
        spec: Object = {"containers": [self.container("main")], "terminationGracePeriodSeconds": 3600}
        if self.sometimes(0.3):
            spec["containers"].append(self.container("second"))
        if self.sometimes(0.3):
            spec["initContainers"] = [self.init_container(f"init{i}") for i in range(self.random.randint(1, 3))]
        if self.sometimes(0.15):
            spec["runtimeClassName"] = "heavy"
        if self.sometimes(0.1):
            spec["resources"] = {"requests": {"cpu": self.one(("1", "2")), "memory": self.one(("1Gi", "2Gi"))}}
        if self.sometimes(0.1):
            spec["hostNetwork"] = True
        if self.sometimes(0.2):
            spec["nodeSelector"] = {key: self.one(VALUES) for key in self.some(LABELS, 1)}
        if self.sometimes(0.5):
            spec["tolerations"] = [self.toleration() for _ in range(self.random.randint(1, 4))]
        if self.sometimes(0.7 if self.crowded else 0.35):
            spec["topologySpreadConstraints"] = self.spread_constraints()
        affinity = self.affinity()
        if affinity:
            spec["affinity"] = affinity
        if claims and self.sometimes(0.25):
            spec["volumes"] = [
                {"name": f"v{i}", "persistentVolumeClaim": {"claimName": claim}}
                for i, claim in enumerate(sorted({self.one(claims) for _ in range(self.random.randint(1, 2))}))
            ]
        if self.sometimes(0.04):
            spec["schedulingGates"] = [{"name": "windlass.test/gate"}]
        labels = {key: self.one(("1", "2")) for key in ("app", "job") if self.sometimes(0.8)}
        meta = {"name": name, "namespace": namespace, "labels": labels}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}

    def small_pod(self, namespace: str, name: str) -> Object:
        """A pod that asks for little and has no rules of its own: somebody to be counted."""
        labels = {key: self.one(("1", "2")) for key in ("app", "job") if self.sometimes(0.9)}
        spec = {"containers": [{"name": "main", "image": "none"}], "terminationGracePeriodSeconds": 3600}
        meta = {"name": name, "namespace": namespace, "labels": labels}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}

    def container(self, name: str) -> Object:
        made: Object = {"name": name, "image": "none", "resources": self.resources()}
        if self.sometimes(0.15):
            made["ports"] = [self.port() for _ in range(self.random.randint(1, 2))]
        return made

    def init_container(self, name: str) -> Object:
        made: Object = {"name": name, "image": "none", "resources": self.resources()}
        if self.sometimes(0.5):
            made["restartPolicy"] = "Always"
            if self.sometimes(0.3):
                made["ports"] = [self.port()]
        return made

    def resources(self) -> Object:
        """Requests, limits, or both; extended resources are limits, as Kubernetes wants it."""
        asked: dict[str, str] = {}
        for resource, amounts, share in (
            ("cpu", CPU, 0.7),
            ("memory", MEMORY, 0.7),
            ("ephemeral-storage", DISK, 0.15),
        ):
            if self.sometimes(share):
                asked[resource] = self.one(amounts)
        limits = {self.device: self.one(("1", "1", "2", "4", "8"))} if self.sometimes(0.12) else {}
        if self.sometimes(0.05):
            limits[NIC] = "1"
        if self.sometimes(0.2):
            return {"limits": {**asked, **limits}}
        return {"requests": asked, "limits": limits}

    def port(self) -> Object:
        number = self.one((80, 81, 82))
        made: Object = {"containerPort": number, "protocol": self.one(("TCP", "TCP", "UDP"))}
        if self.sometimes(0.8):
            made["hostPort"] = number
            if self.sometimes(0.4):
                made["hostIP"] = self.one(("10.0.0.1", "10.0.0.2", "0.0.0.0"))
        return made

    def toleration(self) -> Object:
        operators = ["Exists", "Equal", ""] + (["Lt", "Gt"] if self.comparing else [])
        operator = self.one(operators)
        made: Object = {"effect": self.one(("", *EFFECTS))}
        if operator:
            made["operator"] = operator
        if operator == "Exists":
            made["key"] = self.one(("", "a", "b", CORDON))
        else:
            made["key"] = self.one(("a", "b"))
            made["value"] = self.one(("1", "3", "9")) if operator in ("Lt", "Gt") else self.one(("", "1", "5", "word"))
        return made

    # ---- rules

    def affinity(self) -> Object:
        made: Object = {}
        if self.sometimes(0.4):
            made["nodeAffinity"] = self.required_and_preferred(self.node_selector, self.preferred_node_term)
        if self.sometimes(0.2):
            made["podAffinity"] = self.required_and_preferred(self.pod_terms, self.preferred_pod_term)
        if self.sometimes(0.2):
            made["podAntiAffinity"] = self.required_and_preferred(self.pod_terms, self.preferred_pod_term)
        return made

    def required_and_preferred(self, required: Any, preferred: Any) -> Object:
        made: Object = {}
        if self.sometimes(0.4):
            made["requiredDuringSchedulingIgnoredDuringExecution"] = required()
        if self.sometimes(0.7):
            made["preferredDuringSchedulingIgnoredDuringExecution"] = [
                preferred() for _ in range(self.random.randint(1, 2))
            ]
        return made

    def node_selector(self) -> Object:
        return {"nodeSelectorTerms": [self.node_term() for _ in range(self.random.randint(1, 2))]}

    def preferred_node_term(self) -> Object:
        return {"weight": self.random.randint(1, 100), "preference": self.node_term()}

    def node_term(self) -> Object:
        made: Object = {}
        if self.sometimes(0.9):
            made["matchExpressions"] = [self.node_requirement() for _ in range(self.random.randint(1, 2))]
        if self.sometimes(0.2):
            name = self.one(self.node_names)
            made["matchFields"] = [{"key": "metadata.name", "operator": self.one(("In", "NotIn")), "values": [name]}]
        return made

    node_names: Sequence[str] = ("nobody",)

    def node_requirement(self) -> Object:
        operator = self.one(("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"))
        made = {"key": self.one(LABELS), "operator": operator}
        if operator in ("In", "NotIn"):
            made["values"] = self.some(VALUES)
        elif operator in ("Gt", "Lt"):
            made["values"] = [self.one(("0", "1", "1", "2"))]
        return made

    def pod_terms(self) -> list[Object]:
        return [self.pod_term() for _ in range(self.random.randint(1, 2))]

    def preferred_pod_term(self) -> Object:
        return {"weight": self.random.randint(1, 100), "podAffinityTerm": self.pod_term()}

    def pod_term(self) -> Object:
        made: Object = {"topologyKey": self.one(TOPOLOGY)}
        if self.sometimes(0.95):
            made["labelSelector"] = self.selector()
            if self.sometimes(0.15):
                made["matchLabelKeys"] = [self.one(("job", "absent", "app"))]
            if self.sometimes(0.1):
                made["mismatchLabelKeys"] = [self.one(("job", "absent", "app"))]
        if self.sometimes(0.2):
            made["namespaces"] = self.some(self.namespaces)
        if self.sometimes(0.2):
            made["namespaceSelector"] = self.one(({}, {"matchLabels": {"team": self.one(("1", "2"))}}))
        return made

    def selector(self) -> Object:
        made: Object = {}
        if self.sometimes(0.7):
            made["matchLabels"] = {key: self.one(("1", "2")) for key in self.some(("app", "app", "job"), 1)}
        if self.sometimes(0.3):
            made["matchExpressions"] = [self.label_requirement()]
        return made

    def label_requirement(self) -> Object:
        operator = self.one(("In", "NotIn", "Exists", "DoesNotExist"))
        made = {"key": self.one(("app", "job")), "operator": operator}
        if operator in ("In", "NotIn"):
            made["values"] = self.some(("1", "2"))
        return made

    def spread_constraints(self) -> list[Object]:
        pairs = [(key, when) for key in TOPOLOGY for when in ("DoNotSchedule", "ScheduleAnyway")]
        made = []
        for key, when in self.some([*pairs[::2], *pairs[::2], *pairs[1::2]], 2):
            constraint: Object = {
                "maxSkew": self.one((1, 1, 1, 2, 5)),
                "topologyKey": key,
                "whenUnsatisfiable": when,
                "labelSelector": self.selector() if self.sometimes(0.4) else {"matchLabels": {"app": "1"}},
            }
            if when == "DoNotSchedule" and self.sometimes(0.4):
                constraint["minDomains"] = self.random.randint(1, 5)
            if self.sometimes(0.4):
                constraint["nodeAffinityPolicy"] = self.one(("Honor", "Ignore"))
            if self.sometimes(0.6):
                constraint["nodeTaintsPolicy"] = self.one(("Honor", "Honor", "Ignore"))
            if self.sometimes(0.2):
                constraint["matchLabelKeys"] = [self.one(("job", "absent", "app"))]
            made.append(constraint)
        return made
