"""Removes confidential data: environment values, secrets, commands, unknown annotations, addresses.

Called by `dump.save` on every object and log for `--redact`. What the engine and diagnosis read stays: a plan of the
redacted dump is the plan of the original.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable
from typing import Any

import msgspec

from windlass.dump.raw_objects import RawObject
from windlass.kube.freeze import FREEZE_CONFIG_MAP
from windlass.model.names.kai import KAI_FRACTION, KAI_GROUP_ANNOTATION, KAI_MEMORY
from windlass.model.names.kubernetes import (
    BIND_COMPLETED_ANNOTATION,
    DEFAULT_STORAGE_CLASS_ANNOTATION,
    MIRROR_ANNOTATION,
    SELECTED_NODE_ANNOTATION,
    STORAGE_CLASS_ANNOTATION,
)
from windlass.model.names.kueue import KUEUE_PREFIX
from windlass.model.names.nvidia import NVIDIA_PREFIX
from windlass.model.names.others import (
    ALIBABA_COUNT,
    ALIBABA_MILLI,
    ALIBABA_MODEL,
    JOBSET_EXCLUSIVE_ANNOTATION,
    LWS_EXCLUSIVE_ANNOTATION,
    LWS_SUBGROUP_EXCLUSIVE_ANNOTATION,
)
from windlass.model.names.windlass import WINDLASS_PREFIX

KEPT_ANNOTATIONS = (
    KUEUE_PREFIX,
    WINDLASS_PREFIX,
    "scheduling.k8s.io/",
    "scheduling.volcano.sh/",
    "volcano.sh/",
    "kai.scheduler/",
    KAI_GROUP_ANNOTATION,
    JOBSET_EXCLUSIVE_ANNOTATION,
    LWS_EXCLUSIVE_ANNOTATION,
    LWS_SUBGROUP_EXCLUSIVE_ANNOTATION,
    "cluster-autoscaler.kubernetes.io/",
    "karpenter.sh/",
    NVIDIA_PREFIX,
    KAI_FRACTION,
    KAI_MEMORY,
    ALIBABA_COUNT,
    ALIBABA_MILLI,
    ALIBABA_MODEL,
    BIND_COMPLETED_ANNOTATION,
    DEFAULT_STORAGE_CLASS_ANNOTATION,
    MIRROR_ANNOTATION,
    SELECTED_NODE_ANNOTATION,
    STORAGE_CLASS_ANNOTATION,
)
"""Prefixes of the annotations that the engine and diagnosis read; the others are dropped."""
KEPT_VARIABLES = ("NVIDIA_", "CUDA_", "NCCL_")
"""Environment variables whose values diagnosis reads."""
DROPPED = frozenset(
    {
        "managedFields",
        "command",
        "args",
        "lifecycle",
        "livenessProbe",
        "readinessProbe",
        "startupProbe",
        "imagePullSecrets",
        "addresses",
        "podIP",
        "podIPs",
        "hostIPs",
        "podCIDR",
        "podCIDRs",
        "stringData",
        "binaryData",
    }
)
"""Fields that neither the engine nor diagnosis reads."""
KEPT_MAPS = frozenset({"labels", "matchLabels", "nodeLabels", "nodeSelector"})
"""Maps whose keys the user chooses: a label may be called `command`."""
COMMON_ADDRESSES = frozenset({"", "0.0.0.0", "::", "127.0.0.1", "::1"})
_SALT = secrets.token_bytes(16)
KEPT_DATA_MARKERS = (
    *("sharing:", "timeSlicing", "mig-configs:", "migStrategy", "autoscalerStatus", "nodeGroups"),
    "SchedulerConfiguration",
)
"""ConfigMap values with one of these stay: configuration of the GPU stack and schedulers, autoscaler status."""
FREEZE_FIELDS = ("state", "since")
"""Of the ConfigMap that freezes Windlass; not by whom and why."""


def redact_object(raw: RawObject) -> dict[str, Any]:
    """A redacted copy of the object."""
    tree = msgspec.json.decode(msgspec.json.encode(raw.data))
    assert isinstance(tree, dict), raw.header
    _clean_data(tree)
    _clean(tree)
    return tree


def _clean_data(tree: dict[str, Any]) -> None:
    """Removes all data of Secrets, and of ConfigMaps all but the configuration of GPUs and schedulers."""
    data = tree.get("data")
    if tree.get("kind") == "Secret" or not isinstance(data, dict):
        tree.pop("data", None)
        return
    kept = FREEZE_FIELDS if (tree.get("metadata") or {}).get("name") == FREEZE_CONFIG_MAP else ()
    tree["data"] = {
        key: value
        for key, value in data.items()
        if isinstance(value, str) and (key in kept or any(word in value for word in KEPT_DATA_MARKERS))
    }


def _clean(tree: Any) -> None:
    if isinstance(tree, list):
        for value in tree:
            _clean(value)
    if not isinstance(tree, dict):
        return
    for name in DROPPED.intersection(tree):
        del tree[name]
    _clean_address(tree)
    annotations = tree.get("annotations")
    if isinstance(annotations, dict):
        kept = {key: value for key, value in annotations.items() if key.startswith(KEPT_ANNOTATIONS)}
        tree["annotations"] = kept
    environment = tree.get("env")
    for variable in environment if isinstance(environment, list) else ():
        if isinstance(variable, dict) and not str(variable.get("name", "")).startswith(KEPT_VARIABLES):
            variable.pop("value", None)
    for name, value in tree.items():
        if name not in KEPT_MAPS:
            _clean(value)


def _clean_address(tree: dict[str, Any]) -> None:
    """Of a container port, whether two addresses are equal decides about conflicts, so that another one takes its place
    (from the range for documentation, RFC 3849); anywhere else `hostIP` is the address of a node."""
    address = str(tree.pop("hostIP", "") or "")
    if "containerPort" not in tree or not address:
        return
    if address not in COMMON_ADDRESSES:
        digest = hashlib.sha256(_SALT + address.encode()).hexdigest()
        address = f"2001:db8::{digest[:4]}:{digest[4:8]}"
    tree["hostIP"] = address


def redact_log(text: str, is_gpu_stack: bool, keep_line: Callable[[str], bool]) -> str:
    """Logs of the GPU stack stay as they are; of other logs only the lines that diagnosis recognises stay."""
    if is_gpu_stack:
        return text
    return "\n".join(line for line in text.splitlines() if keep_line(line))
