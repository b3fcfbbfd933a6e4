"""The DaemonSet of one driver version of one stack, chosen by the label `windlass.dev/driver-revision` of nodes.

One a version, and never changed after it was created: a driver pod that dies anywhere comes back with its own
version, canary or not. It has no owner: deleting a stack must not unload drivers under running pods. The container is
NVIDIA's, run as its operator runs it: `nvidia-driver init`, privileged, `/run/nvidia` shared.
"""

from __future__ import annotations

import hashlib

from windlass.model.names.kubernetes import APP_COMPONENT_LABEL, APP_MANAGED_BY_LABEL, APP_NAME_LABEL, APPS_API_VERSION
from windlass.model.names.windlass import DRIVER_REVISION_LABEL
from windlass.model.unstructured import Unstructured
from windlass.operator.decide.owners import DRIVER_COMPONENT
from windlass.operator.kinds.gpu_stack import GPUStack

STACK_LABEL = "windlass.dev/stack"
STARTUP_PROBE = {
    "exec": {"command": ["sh", "-c", "nvidia-smi && touch /run/nvidia/validations/.driver-ctr-ready"]},
    "initialDelaySeconds": 10,
    "periodSeconds": 10,
    "failureThreshold": 120,
    "timeoutSeconds": 60,
}


def daemon_set_name(stack: str, version: str) -> str:
    """Readable and unique: versions may hold characters that names may not, and long names of stacks are cut."""
    digest = hashlib.sha256(f"{stack}/{version}".encode()).hexdigest()[:8]
    return f"windlass-driver-{stack[:38].rstrip('-')}-{digest}"


def driver_daemon_set(stack: GPUStack, version: str, namespace: str) -> Unstructured:
    labels = {
        APP_NAME_LABEL: "windlass",
        APP_COMPONENT_LABEL: DRIVER_COMPONENT,
        STACK_LABEL: stack.name,
        DRIVER_REVISION_LABEL: version,
    }
    metadata = {
        "name": daemon_set_name(stack.name, version),
        "namespace": namespace,
        "labels": {**labels, APP_MANAGED_BY_LABEL: "windlass"},
    }
    template = {"metadata": {"labels": labels}, "spec": _pod(stack, version)}
    spec = {
        "selector": {"matchLabels": labels},
        "updateStrategy": {"type": "OnDelete"},
        "template": template,
    }
    return {"apiVersion": APPS_API_VERSION, "kind": "DaemonSet", "metadata": metadata, "spec": spec}


def _pod(stack: GPUStack, version: str) -> Unstructured:
    driver = stack.spec.driver
    folders = {
        "run-nvidia": "/run/nvidia",
        "var-log": "/var/log",
        "dev-log": "/dev/log",
        "host-os-release": "/etc/os-release",
        "run-mellanox-drivers": "/run/mellanox/drivers",
        "firmware-search-path": "/sys/module/firmware_class/parameters/path",
        "sysfs-memory-online": "/sys/devices/system/memory/auto_online_blocks",
        "lib-firmware": "/run/nvidia/driver/lib/firmware",
    }
    created = ("run-nvidia", "run-mellanox-drivers", "lib-firmware")
    mounts = [{"name": name, "mountPath": path} for name, path in folders.items()]
    mounts[0]["mountPropagation"] = "Bidirectional"
    container = {
        "name": "nvidia-driver-ctr",
        "image": f"{driver.image}:{driver.tag.replace('{version}', version)}",
        "command": ["nvidia-driver"],
        "args": ["init"],
        "securityContext": {"privileged": True, "seLinuxOptions": {"level": "s0"}},
        "startupProbe": STARTUP_PROBE,
        "lifecycle": {
            "preStop": {"exec": {"command": ["sh", "-c", "rm -f /run/nvidia/validations/.driver-ctr-ready"]}}
        },
        "volumeMounts": mounts,
    }
    return {
        "nodeSelector": {DRIVER_REVISION_LABEL: version},
        "tolerations": [{"operator": "Exists"}],
        "priorityClassName": "system-node-critical",
        "hostPID": True,
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 120,
        "containers": [container],
        "volumes": [
            {"name": name, "hostPath": {"path": path, **({"type": "DirectoryOrCreate"} if name in created else {})}}
            for name, path in folders.items()
        ],
    }
