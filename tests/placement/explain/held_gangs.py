"""Small random clusters with one gang that waits, and the same gang with a request that a verdict proposes."""

from __future__ import annotations

import msgspec
from hypothesis import strategies as st

from reference.park import A100, H100, gpu_node, pod
from windlass.model.codec import decode_object
from windlass.model.meta import OwnerReference
from windlass.model.node import Taint
from windlass.model.pod import PodStatus, Toleration
from windlass.model.times import format_timestamp

NOW = 1_800_000_000
RACK, ZONE = "windlass.dev/rack", "topology.kubernetes.io/zone"
PRODUCT = "nvidia.com/gpu.product"
REQUIRED, PREFERRED = (f"kueue.x-k8s.io/podset-{word}-topology" for word in ("required", "preferred"))
QUEUE = "kueue.x-k8s.io/queue-name"
SECRET = "tenant-x"


class GangRequest(msgspec.Struct, frozen=True):
    """What the gang requests."""

    pods: int
    gpus: int
    cpu: int | str = 1
    topology: tuple[str, str] | None = None
    """Annotation and level."""
    product: str = ""
    tolerations: tuple[Toleration, ...] = ()
    queue: str = ""

    def objects(self):
        annotations = {self.topology[0]: self.topology[1]} if self.topology else {}
        return [
            pod(
                f"w{i}",
                self.gpus,
                cpu=str(self.cpu),
                group=("w", self.pods),
                annotations=annotations,
                labels={QUEUE: self.queue} if self.queue else {},
                created=format_timestamp(NOW - 60),
                node_selector={PRODUCT: self.product} if self.product else {},
                tolerations=self.tolerations,
            )
            for i in range(self.pods)
        ]

    def with_change(self, change):
        """The request that the change describes, read from its fields alone."""
        match change.kind:
            case "pods" | "gpus":
                return msgspec.structs.replace(self, **{change.kind: int(change.after)})
            case "cpu":
                return msgspec.structs.replace(self, cpu=change.after)
            case "model":
                return msgspec.structs.replace(self, product=change.after)
            case "selector":
                return msgspec.structs.replace(self, product="")
            case "topology":
                topology = (PREFERRED, self.topology[1]) if change.after == "preferred" else (REQUIRED, change.after)
                return msgspec.structs.replace(self, topology=topology)
            case "toleration":
                more = tuple(_toleration(text) for text in change.after.split(" and "))
                return msgspec.structs.replace(self, tolerations=(*self.tolerations, *more))
        raise AssertionError(f"a change of {change.kind} can't come up here")


def _toleration(text):
    named, effect = text.rsplit(":", 1)
    key, _, value = named.partition("=")
    return Toleration(key, "Equal" if value else "Exists", value, effect)


class Cluster(msgspec.Struct, frozen=True):
    """Everything but the gang."""

    objects: tuple[object, ...]
    running: tuple[object, ...]

    def with_gang(self, request, without=()):
        kept = [running for running in self.running if running.key not in without]
        return [*self.objects, *kept, *request.objects()]


def running_pod(name, gpus, cpu, node, *, limit=None, is_bare=False, age=600):
    spec = {"active_deadline_seconds": limit} if limit else {}
    created = pod(name, gpus, cpu=str(cpu), on=node, namespace="other", created=format_timestamp(NOW - age), **spec)
    owners = () if is_bare else (OwnerReference("ReplicaSet", "apps/v1", name, controller=True),)
    return msgspec.structs.replace(
        created,
        metadata=msgspec.structs.replace(created.metadata, owner_references=owners),
        status=PodStatus(phase="Running", start_time=format_timestamp(NOW - age)),
    )


def queue_objects(quota):
    flavor = {"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "ResourceFlavor", "metadata": {"name": "f"}}
    cells = [
        {"name": "nvidia.com/gpu", "nominalQuota": quota},
        {"name": "cpu", "nominalQuota": 1000},
        {"name": "memory", "nominalQuota": "1000Gi"},
    ]
    spec = {
        "namespaceSelector": {},
        "resourceGroups": [
            {
                "coveredResources": [cell["name"] for cell in cells],
                "flavors": [{"name": "f", "resources": cells}],
            }
        ],
    }
    queue = {
        "apiVersion": "kueue.x-k8s.io/v1beta1",
        "kind": "ClusterQueue",
        "metadata": {"name": "cq"},
        "spec": spec,
    }
    local = {
        "apiVersion": "kueue.x-k8s.io/v1beta1",
        "kind": "LocalQueue",
        "metadata": {"name": "lq", "namespace": "default"},
        "spec": {"clusterQueue": "cq"},
    }
    return [decode_object(tree) for tree in (flavor, queue, local)]


PRIORITY_CLASS = {
    "apiVersion": "scheduling.k8s.io/v1",
    "kind": "PriorityClass",
    "metadata": {"name": "normal"},
    "value": 0,
}


@st.composite
def clusters(draw):
    """Two to five nodes in racks of two, one model each, some with a taint, partly in use."""
    count = draw(st.integers(2, 5))
    nodes, running = [], []
    for i in range(count):
        gpus = draw(st.sampled_from((4, 8)))
        taints = (Taint("dedicated", "NoSchedule", SECRET),) if draw(st.integers(0, 4)) == 0 else ()
        labels = {RACK: f"r{i // 2}", ZONE: "z"}
        model = draw(st.sampled_from((H100, H100, A100)))
        nodes.append(gpu_node(f"n{i}", gpus, cpu=16, model=model, labels=labels, taints=taints))
        left, cores = gpus, 16
        for k in range(draw(st.integers(0, 3))):
            pod_gpus, cpu = draw(st.sampled_from((1, 2, 4))), draw(st.sampled_from((1, 2, 6)))
            if pod_gpus <= left and cpu < cores:
                left, cores = left - pod_gpus, cores - cpu
                running.append(
                    running_pod(
                        f"p{i}{k}",
                        pod_gpus,
                        cpu,
                        f"n{i}",
                        limit=draw(st.sampled_from((None, None, 3600))),
                        is_bare=draw(st.booleans()),
                    )
                )
    objects = [*nodes, decode_object(PRIORITY_CLASS)]
    return Cluster(tuple(objects), tuple(running))


@st.composite
def gang_requests(draw):
    return GangRequest(
        pods=draw(st.integers(1, 4)),
        gpus=draw(st.sampled_from((1, 2, 4, 6, 8))),
        cpu=draw(st.sampled_from((1, 1, 4, 14))),
        topology=draw(st.sampled_from((None, None, (REQUIRED, RACK)))),
        product=draw(st.sampled_from(("", "", A100))),
    )
