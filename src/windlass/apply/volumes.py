"""Claims that wait for their first consumer: they are told the node, and the bind waits until they have a volume.

Called by the scheduler before a bind, with what its informers know of the claims.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from windlass.kube.client import KubeClient
from windlass.kube.errors import ApiError, Status
from windlass.kube.writes import select_node
from windlass.model.pod import Pod
from windlass.model.volume import PersistentVolumeClaim

LONGEST_WAIT = 600.0
"""As kube-scheduler's bindTimeoutSeconds."""
LOOK_EVERY = 0.25

ClaimLookup = Callable[[str], PersistentVolumeClaim | None]


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


def unbound_claims(pod: Pod, look: ClaimLookup) -> list[str]:
    found = ((key, look(key)) for key in claim_keys(pod))
    return [key for key, claim in found if claim is not None and claim.status.phase != "Bound"]


async def provide_volumes(client: KubeClient, claims: Sequence[str], node: str, look: ClaimLookup) -> None:
    """Say where the pod will be, and wait until each claim has its volume."""
    for claim in claims:
        await client.send(select_node(claim, node))
    deadline = asyncio.get_running_loop().time() + LONGEST_WAIT
    while True:
        waiting = [key for key in claims if (found := look(key)) is None or found.status.phase != "Bound"]
        if not waiting:
            return
        if asyncio.get_running_loop().time() > deadline:
            raise ApiError(504, Status(message=f"claims {', '.join(waiting)} got no volume"))
        await asyncio.sleep(LOOK_EVERY)
