"""Claims that wait for their first consumer: a volume that is on the node is kept for them, or they are told the node
so that one is made there; and the bind waits until they have it.

Called by the scheduler before a bind, with what its informers know of claims and volumes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

import msgspec

from windlass.kube.client import KubeClient
from windlass.kube.errors import ApiError, LeaseLost, Status
from windlass.kube.request import Request
from windlass.kube.write_requests import SELECTED_NODE, annotate_selected_node, prebind_volume
from windlass.model.pod import Pod
from windlass.model.volume import PersistentVolume, PersistentVolumeClaim

BIND_TIMEOUT_SECONDS = 600.0
"""As kube-scheduler's bindTimeoutSeconds."""
POLL_SECONDS = 0.25

ClaimLookup = Callable[[str], PersistentVolumeClaim | None]


class PodVolumes(msgspec.Struct, frozen=True):
    """What a pod that goes to a node needs of its volumes."""

    node: str
    claims: Sequence[str]
    """Those that have no volume yet."""
    static_bindings: Mapping[str, PersistentVolume]
    """Claim → the volume on that node that is to be kept for it."""


def claim_keys(pod: Pod) -> list[str]:
    """The claims of a pod; those of its ephemeral volumes are named after both."""
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
    client: KubeClient, wanted: PodVolumes, get_claim: ClaimLookup, may_write: Callable[[], bool]
) -> None:
    """Say which volume or which node it will be, and wait until each claim has its volume."""
    for claim in wanted.claims:
        await client.send(_request(claim, wanted, get_claim), may_write)
    told: set[str] = set()
    deadline = asyncio.get_running_loop().time() + BIND_TIMEOUT_SECONDS
    while True:
        waiting = [key for key in wanted.claims if not _has_volume(key, wanted, get_claim, told)]
        if not waiting:
            return
        if not may_write():
            raise LeaseLost(f"volumes of {', '.join(waiting)} are not waited for: the lease is lost")
        if asyncio.get_running_loop().time() > deadline:
            raise _failed(504, f"claims {', '.join(waiting)} got no volume")
        await asyncio.sleep(POLL_SECONDS)


def _request(claim: str, wanted: PodVolumes, look: ClaimLookup) -> Request:
    volume, found = wanted.static_bindings.get(claim), look(claim)
    if volume is None or found is None:
        return annotate_selected_node(claim, wanted.node)
    return prebind_volume(volume.metadata.name, volume.metadata.resource_version, claim, found.metadata.uid)


def _has_volume(key: str, wanted: PodVolumes, look: ClaimLookup, told: set[str]) -> bool:
    """Whether the claim has got it; raises where it won't. `told`: claims that were seen to know the node."""
    claim = look(key)
    if claim is None:
        raise _failed(404, f"claim {key} is gone")
    if claim.status.phase == "Bound":
        return True
    if claim.metadata.annotations.get(SELECTED_NODE) == wanted.node:
        told.add(key)
    elif key in told:
        raise _failed(
            503, f"claim {key} can't have a volume on {wanted.node}: its provisioner gave the node back"
        )
    return False


def _failed(code: int, message: str) -> ApiError:
    return ApiError(code, Status(message=message))
