"""Binds volumes before a pod: reserves existing volumes on the node, or has new ones provisioned there, and waits.

For claims with volumeBindingMode WaitForFirstConsumer. `apply.executor` runs `bind_pod_volumes` as the binder's
`pre_bind`, with claims and volumes from the informers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

import msgspec

from windlass.kube.client import KubeClient
from windlass.kube.errors import ApiError, LeaseLost, Status
from windlass.kube.request import Request
from windlass.kube.write_requests import annotate_selected_node, prebind_volume
from windlass.model.names.kubernetes import SELECTED_NODE_ANNOTATION
from windlass.model.pod import Pod
from windlass.model.volume import PersistentVolume, PersistentVolumeClaim

BIND_TIMEOUT_SECONDS = 600.0
"""As kube-scheduler's bindTimeoutSeconds."""
POLL_SECONDS = 0.25

ClaimLookup = Callable[[str], PersistentVolumeClaim | None]


class PodVolumes(msgspec.Struct, frozen=True):
    node: str
    claims: Sequence[str]
    """The pod's unbound claims."""
    static_bindings: Mapping[str, PersistentVolume]
    """Claim → existing volume on the node to bind to it; the other claims are provisioned."""


def claim_keys(pod: Pod) -> list[str]:
    """The claims of a pod; that of an ephemeral volume is named after pod and volume."""
    namespace = pod.metadata.namespace or "default"
    keys = []
    for volume in pod.spec.volumes:
        if volume.persistent_volume_claim is not None:
            keys.append(f"{namespace}/{volume.persistent_volume_claim.claim_name}")
        elif volume.ephemeral is not None:
            keys.append(f"{namespace}/{pod.metadata.name}-{volume.name}")
    return keys


def unbound_claims(pod: Pod, get_claim: ClaimLookup) -> list[str]:
    found = ((key, get_claim(key)) for key in claim_keys(pod))
    return [key for key, claim in found if claim is not None and claim.status.phase != "Bound"]


async def bind_pod_volumes(
    client: KubeClient, pod_volumes: PodVolumes, get_claim: ClaimLookup, may_write: Callable[[], bool]
) -> None:
    """Selects a volume or the node for each claim, then waits until all are bound."""
    for claim in pod_volumes.claims:
        await client.send(_request(claim, pod_volumes, get_claim), may_write)
    selected: set[str] = set()
    deadline = asyncio.get_running_loop().time() + BIND_TIMEOUT_SECONDS
    while True:
        waiting = [key for key in pod_volumes.claims if not _has_volume(key, pod_volumes, get_claim, selected)]
        if not waiting:
            return
        if not may_write():
            raise LeaseLost(f"lost the lease while waiting for volumes of claims {', '.join(waiting)}")
        if asyncio.get_running_loop().time() > deadline:
            minutes = BIND_TIMEOUT_SECONDS / 60
            claims = ", ".join(waiting)
            raise _bind_error(
                504, f"no volume for claims {claims} within {minutes:.0f} minutes: see kubectl describe pvc"
            )
        await asyncio.sleep(POLL_SECONDS)


def _request(claim: str, pod_volumes: PodVolumes, get_claim: ClaimLookup) -> Request:
    volume, found = pod_volumes.static_bindings.get(claim), get_claim(claim)
    if volume is None or found is None:
        return annotate_selected_node(claim, pod_volumes.node)
    return prebind_volume(volume.metadata.name, volume.metadata.resource_version, claim, found.metadata.uid)


def _has_volume(key: str, pod_volumes: PodVolumes, get_claim: ClaimLookup, selected: set[str]) -> bool:
    """Whether the claim is bound; raises if it won't be. `selected` collects claims seen with their node annotation:
    a provisioner that can't provision on that node removes it."""
    claim = get_claim(key)
    if claim is None:
        raise _bind_error(404, f"claim {key} was deleted")
    if claim.status.phase == "Bound":
        return True
    if claim.metadata.annotations.get(SELECTED_NODE_ANNOTATION) == pod_volumes.node:
        selected.add(key)
    elif key in selected:
        raise _bind_error(503, f"the provisioner can't create a volume for claim {key} on {pod_volumes.node}")
    return False


def _bind_error(code: int, message: str) -> ApiError:
    return ApiError(code, Status(message=message))
