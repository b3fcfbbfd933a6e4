"""Rules about what makes GPU pods fail later: shared memory, local disk, rights, restarts, deprecated fields."""

from __future__ import annotations

import re
from collections.abc import Iterator

from windlass.diagnose import tree
from windlass.diagnose.check.manifest import Manifest, PodView
from windlass.diagnose.check.requests import asks_for_gpus, readable
from windlass.diagnose.check.rule import ERROR, INFO, WARNING, Around, Fix, Said, rule
from windlass.diagnose.nodes import accelerators

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
    "beta.kubernetes.io/instance-type": "use node.kubernetes.io/instance-type",
    "beta.kubernetes.io/arch": "use kubernetes.io/arch",
    "beta.kubernetes.io/os": "use kubernetes.io/os",
    "failure-domain.beta.kubernetes.io/zone": "use topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "use topology.kubernetes.io/region",
    "scheduler.alpha.kubernetes.io/critical-pod": "use a priorityClassName",
    "seccomp.security.alpha.kubernetes.io/pod": "use securityContext.seccompProfile",
}


def _has_shared_memory(view: PodView) -> bool:
    memory = {
        tree.text(volume, "name")
        for volume in tree.rows(view.spec, "volumes")
        if tree.text(volume, "emptyDir", "medium") == "Memory"
    }
    return any(
        tree.text(mount, "mountPath").rstrip("/") == "/dev/shm" and tree.text(mount, "name") in memory
        for _, container in view.containers()
        for mount in tree.rows(container, "volumeMounts")
    )


@rule("shared-memory", WARNING, "Multi-process training has a memory-backed /dev/shm")
def shared_memory(manifest: Manifest, around: Around) -> Iterator[Said]:
    for view in manifest.pods:
        read = readable(view)
        if (
            read is None
            or not asks_for_gpus(view)
            or _has_shared_memory(view)
            or tree.flag(view.spec, "hostIPC")
        ):
            continue
        several = sum(accelerators(read[1]).values()) > 1 or manifest.kind in TRAINING_KINDS
        commands = " ".join(
            word
            for _, container in view.containers()
            for part in ("command", "args")
            for word in tree.words(container, part)
        )
        if several or MULTI_PROCESS.search(commands):
            yield Said(
                "/dev/shm is the 64 MiB default, too small for data loaders and NCCL in several processes",
                view.at("spec.volumes"),
                "mount an emptyDir with medium: Memory at /dev/shm",
            )


@rule("ephemeral-storage", INFO, "A GPU pod says how much local disk it needs")
def ephemeral_storage(manifest: Manifest, around: Around) -> Iterator[Said]:
    for view in manifest.pods:
        read = readable(view)
        if read is not None and asks_for_gpus(view) and "ephemeral-storage" not in read[1]:
            yield Said(
                "asks for no ephemeral-storage, so weights and caches on the container's disk can get it evicted",
                view.at("spec"),
                "request ephemeral-storage, or keep weights on a volume",
            )


@rule("least-privilege", INFO, "The pod runs without root and with seccomp")
def least_privilege(manifest: Manifest, around: Around) -> Iterator[Said]:
    for view in manifest.pods:
        pod_level = tree.table(view.spec, "securityContext")
        for path, container in view.containers():
            own = tree.table(container, "securityContext")
            if tree.flag(own, "privileged"):
                yield Said(
                    "is privileged", f"{path}.securityContext.privileged", "GPUs need no privileges", WARNING
                )
            root = own.get("runAsNonRoot", pod_level.get("runAsNonRoot")) is not True
            user = own.get("runAsUser", pod_level.get("runAsUser"))
            if root and user in (None, 0):
                yield Said("may run as root", path, "set securityContext.runAsNonRoot: true")
            if "seccompProfile" not in own and "seccompProfile" not in pod_level:
                yield Said("has no seccomp profile", path, "set seccompProfile.type: RuntimeDefault")


@rule(
    "restartable-when-preemptible",
    WARNING,
    "Work that may be preempted can be restarted or keeps checkpoints",
)
def restartable(manifest: Manifest, around: Around) -> Iterator[Said]:
    annotations = tree.table(manifest.data, "metadata", "annotations")
    why, where = _preemptible(manifest)
    if not why or "windlass.dev/last-checkpoint" in annotations:
        return
    if manifest.kind == "Pod":
        yield Said(
            f"{why}, and nothing would make it again",
            where,
            "use a Job, and keep checkpoints",
        )
    elif manifest.kind == "Job" and tree.at(manifest.data, "spec", "backoffLimit") == 0:
        yield Said(
            f"{why}, and its backoffLimit of 0 lets nothing be tried again",
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
"""Labels of machines that the provider may take back."""


def _preemptible(manifest: Manifest) -> tuple[str, str]:
    """Why it may be stopped before its end, and the field that says so; empty where nothing does."""
    if "kueue.x-k8s.io/queue-name" in tree.table(manifest.data, "metadata", "labels"):
        label = "metadata.labels.kueue.x-k8s.io/queue-name"
        return "waits in a queue, where it may be preempted", label
    for view in manifest.pods:
        for key, value in tree.table(view.spec, "nodeSelector").items():
            if SPOT.get(key) == value:
                return "wants machines that the provider may take back", view.at(f"spec.nodeSelector.{key}")
    return "", ""


@rule("deprecated", WARNING, "No deprecated names")
def deprecated(manifest: Manifest, around: Around) -> Iterator[Said]:
    for view in manifest.pods:
        for key in tree.table(view.spec, "nodeSelector"):
            if key in DEPRECATED:
                yield Said(f"{key} is deprecated", view.at(f"spec.nodeSelector.{key}"), DEPRECATED[key])
        for path, container in view.containers():
            for key in tree.table(container, "resources", "limits"):
                if key in DEPRECATED:
                    yield Said(f"{key} is gone", f"{path}.resources.limits.{key}", DEPRECATED[key], ERROR)
        for key in tree.table(view.template, "metadata", "annotations"):
            if key in DEPRECATED:
                yield Said(f"{key} is deprecated", view.at(f"metadata.annotations.{key}"), DEPRECATED[key])
        for place, claim in enumerate(tree.rows(view.spec, "resourceClaims")):
            if "source" in claim:
                yield Said(
                    "the field source is gone from resource claims",
                    view.at(f"spec.resourceClaims[{place}].source"),
                    "write resourceClaimName or resourceClaimTemplateName directly",
                    ERROR,
                )


@rule("visible-devices-all", WARNING, "NVIDIA_VISIBLE_DEVICES=all does not stand without a request")
def visible_devices_all(manifest: Manifest, around: Around) -> Iterator[Said]:
    for view in manifest.pods:
        if asks_for_gpus(view):
            continue
        for path, container in view.containers():
            for place, variable in enumerate(tree.rows(container, "env")):
                if (
                    tree.text(variable, "name") == "NVIDIA_VISIBLE_DEVICES"
                    and tree.text(variable, "value") == "all"
                ):
                    yield Said(
                        "sees every GPU of the node without asking for one",
                        f"{path}.env[{place}].value",
                        "ask for nvidia.com/gpu, and drop the variable",
                        change=Fix(f"{path}.env[{place}].value", "none"),
                    )
