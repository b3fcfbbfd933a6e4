"""Rules about what makes GPU pods fail later: shared memory, local disk, privileges, restarts, deprecated fields."""

from __future__ import annotations

import re
from collections.abc import Iterator

from windlass.diagnose.check.manifest import Manifest, PodView
from windlass.diagnose.check.requests import pod_and_requests, requests_gpus
from windlass.diagnose.check.rule import ERROR, INFO, WARNING, CheckContext, Fix, RuleFinding, rule
from windlass.diagnose.nodes import device_requests
from windlass.diagnose.unstructured import (
    nested,
    nested_bool,
    nested_map,
    nested_maps,
    nested_string,
    nested_strings,
)
from windlass.model.annotation_checks import annotation_problems
from windlass.model.names.kubernetes import BETA_INSTANCE_TYPE_LABEL, BETA_REGION_LABEL, BETA_ZONE_LABEL
from windlass.model.names.kueue import QUEUE_NAME_LABEL
from windlass.model.names.windlass import LAST_CHECKPOINT_ANNOTATION

MULTI_PROCESS = re.compile(
    r"torchrun|torch\.distributed|deepspeed|accelerate launch|mpirun|horovod|num.workers|nproc|tensor-parallel"
)
TRAINING_KINDS = (
    "PyTorchJob",
    "TFJob",
    "MPIJob",
    "TrainJob",
    "JobSet",
    "RayJob",
    "RayCluster",
    "LeaderWorkerSet",
)
DEPRECATED = {
    "alpha.kubernetes.io/nvidia-gpu": "ask for nvidia.com/gpu",
    BETA_INSTANCE_TYPE_LABEL: "use node.kubernetes.io/instance-type",
    "beta.kubernetes.io/arch": "use kubernetes.io/arch",
    "beta.kubernetes.io/os": "use kubernetes.io/os",
    BETA_ZONE_LABEL: "use topology.kubernetes.io/zone",
    BETA_REGION_LABEL: "use topology.kubernetes.io/region",
    "scheduler.alpha.kubernetes.io/critical-pod": "use a priorityClassName",
    "seccomp.security.alpha.kubernetes.io/pod": "use securityContext.seccompProfile",
}


def _has_shared_memory(view: PodView) -> bool:
    memory = {
        nested_string(volume, "name")
        for volume in nested_maps(view.spec, "volumes")
        if nested_string(volume, "emptyDir", "medium") == "Memory"
    }
    return any(
        nested_string(mount, "mountPath").rstrip("/") == "/dev/shm" and nested_string(mount, "name") in memory
        for _, container in view.containers()
        for mount in nested_maps(container, "volumeMounts")
    )


@rule("shared-memory", WARNING, "Multi-process training has a memory-backed /dev/shm")
def shared_memory(manifest: Manifest, context: CheckContext) -> Iterator[RuleFinding]:
    for view in manifest.pods:
        read = pod_and_requests(view)
        if read is None or not requests_gpus(view) or _has_shared_memory(view) or nested_bool(view.spec, "hostIPC"):
            continue
        several = sum(device_requests(read[1]).values()) > 1 or manifest.kind in TRAINING_KINDS
        commands = " ".join(
            word
            for _, container in view.containers()
            for part in ("command", "args")
            for word in nested_strings(container, part)
        )
        if several or MULTI_PROCESS.search(commands):
            yield RuleFinding(
                "/dev/shm is the 64 MiB default, too small for data loaders and NCCL in several processes",
                view.field_path("spec.volumes"),
                "mount an emptyDir with medium: Memory at /dev/shm",
            )


@rule("ephemeral-storage", INFO, "A GPU pod requests the local disk that it needs")
def ephemeral_storage(manifest: Manifest, context: CheckContext) -> Iterator[RuleFinding]:
    for view in manifest.pods:
        read = pod_and_requests(view)
        if read is not None and requests_gpus(view) and "ephemeral-storage" not in read[1]:
            yield RuleFinding(
                "requests no ephemeral-storage, so it can be evicted for weights and caches on the container's disk",
                view.field_path("spec"),
                "request ephemeral-storage, or keep weights on a volume",
            )


@rule("least-privilege", INFO, "The pod runs without root and with seccomp")
def least_privilege(manifest: Manifest, context: CheckContext) -> Iterator[RuleFinding]:
    for view in manifest.pods:
        pod_level = nested_map(view.spec, "securityContext")
        for path, container in view.containers():
            own = nested_map(container, "securityContext")
            if nested_bool(own, "privileged"):
                yield RuleFinding(
                    "is privileged",
                    f"{path}.securityContext.privileged",
                    "remove privileged: true; GPUs need no privileges",
                    WARNING,
                )
            root = own.get("runAsNonRoot", pod_level.get("runAsNonRoot")) is not True
            user = own.get("runAsUser", pod_level.get("runAsUser"))
            if root and user in (None, 0):
                yield RuleFinding("may run as root", path, "set securityContext.runAsNonRoot: true")
            if "seccompProfile" not in own and "seccompProfile" not in pod_level:
                yield RuleFinding("has no seccomp profile", path, "set seccompProfile.type: RuntimeDefault")


@rule(
    "restartable-when-preemptible",
    WARNING,
    "Work that may be preempted is restarted, or keeps checkpoints",
)
def restartable(manifest: Manifest, context: CheckContext) -> Iterator[RuleFinding]:
    annotations = nested_map(manifest.data, "metadata", "annotations")
    why, where = _preemptible(manifest)
    if not why or LAST_CHECKPOINT_ANNOTATION in annotations:
        return
    if manifest.kind == "Pod":
        yield RuleFinding(f"{why}, and no controller would create it again", where, "use a Job, and keep checkpoints")
    elif manifest.kind == "Job" and nested(manifest.data, "spec", "backoffLimit") == 0:
        yield RuleFinding(
            f"{why}, and its backoffLimit of 0 allows no retry",
            "spec.backoffLimit",
            "allow retries, and keep checkpoints",
        )


SPOT = {
    "cloud.google.com/gke-spot": "true",
    "cloud.google.com/gke-preemptible": "true",
    "karpenter.sh/capacity-type": "spot",
    "eks.amazonaws.com/capacityType": "SPOT",
    "kubernetes.azure.com/scalesetpriority": "spot",
}
"""Labels of spot and preemptible machines."""


def _preemptible(manifest: Manifest) -> tuple[str, str]:
    """(why it may be stopped early, path of the field that says so); empty if nothing does."""
    if QUEUE_NAME_LABEL in nested_map(manifest.data, "metadata", "labels"):
        label = "metadata.labels.kueue.x-k8s.io/queue-name"
        return "is in a queue, where it may be preempted", label
    for view in manifest.pods:
        for key, value in nested_map(view.spec, "nodeSelector").items():
            if SPOT.get(key) == value:
                return "selects spot machines, which the provider may take back", view.field_path(
                    f"spec.nodeSelector.{key}"
                )
    return "", ""


@rule("deprecated", WARNING, "No deprecated names")
def deprecated(manifest: Manifest, context: CheckContext) -> Iterator[RuleFinding]:
    for view in manifest.pods:
        for key in nested_map(view.spec, "nodeSelector"):
            if key in DEPRECATED:
                yield RuleFinding(f"{key} is deprecated", view.field_path(f"spec.nodeSelector.{key}"), DEPRECATED[key])
        for path, container in view.containers():
            for key in nested_map(container, "resources", "limits"):
                if key in DEPRECATED:
                    yield RuleFinding(
                        f"{key} no longer exists", f"{path}.resources.limits.{key}", DEPRECATED[key], ERROR
                    )
        for key in nested_map(view.template, "metadata", "annotations"):
            if key in DEPRECATED:
                yield RuleFinding(
                    f"{key} is deprecated", view.field_path(f"metadata.annotations.{key}"), DEPRECATED[key]
                )
        for place, claim in enumerate(nested_maps(view.spec, "resourceClaims")):
            if "source" in claim:
                yield RuleFinding(
                    "the field source of resource claims no longer exists",
                    view.field_path(f"spec.resourceClaims[{place}].source"),
                    "write resourceClaimName or resourceClaimTemplateName directly",
                    ERROR,
                )


@rule("visible-devices-all", WARNING, "NVIDIA_VISIBLE_DEVICES=all is not set without a GPU request")
def visible_devices_all(manifest: Manifest, context: CheckContext) -> Iterator[RuleFinding]:
    for view in manifest.pods:
        if requests_gpus(view):
            continue
        for path, container in view.containers():
            for place, variable in enumerate(nested_maps(container, "env")):
                if (
                    nested_string(variable, "name") == "NVIDIA_VISIBLE_DEVICES"
                    and nested_string(variable, "value") == "all"
                ):
                    yield RuleFinding(
                        "sees every GPU of the node without requesting one",
                        f"{path}.env[{place}].value",
                        "request nvidia.com/gpu, and remove the variable",
                        change=Fix(f"{path}.env[{place}].value", "none"),
                    )


@rule("annotation-readable", WARNING, "Annotations of Windlass have values that it can read")
def annotation_readable(manifest: Manifest, context: CheckContext) -> Iterator[RuleFinding]:
    objects = {"metadata.annotations": manifest.data}
    objects |= {view.field_path("metadata.annotations"): view.template for view in manifest.pods}
    for path, tree in objects.items():
        annotations = nested_map(tree, "metadata", "annotations")
        texts = {name: value for name, value in annotations.items() if isinstance(value, str)}
        for name, problem in annotation_problems(texts):
            yield RuleFinding(problem, f"{path}.{name}")
