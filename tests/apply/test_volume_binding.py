"""Volumes before a bind: what is written for a claim, and when waiting for it ends."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from tests.kube.fake_server import FakeServer

from windlass.apply.volume_binding import PodVolumes, bind_pod_volumes
from windlass.kube.client import KubeClient
from windlass.kube.errors import ApiError, LeaseLost
from windlass.kube.write_requests import prebind_volume
from windlass.model.meta import ObjectMeta
from windlass.model.names.kubernetes import SELECTED_NODE_ANNOTATION
from windlass.model.volume import PersistentVolumeClaim, PersistentVolumeClaimStatus

pytestmark = pytest.mark.asyncio

CLAIM = PersistentVolumeClaim(metadata=ObjectMeta(name="data", namespace="a", uid="u1"))
BOUND = msgspec.structs.replace(CLAIM, status=PersistentVolumeClaimStatus(phase="Bound"))
TOLD = msgspec.structs.replace(
    CLAIM, metadata=msgspec.structs.replace(CLAIM.metadata, annotations={SELECTED_NODE_ANNOTATION: "n1"})
)


class Claims:
    """What the informer says of the claim, the last word for ever."""

    def __init__(self, *found: PersistentVolumeClaim | None) -> None:
        self._found = list(found)

    def __call__(self, key: str) -> PersistentVolumeClaim | None:
        return self._found.pop(0) if len(self._found) > 1 else self._found[0]


class Writes(KubeClient):
    """A server that takes everything."""

    async def send(self, request, allowed=None):  # type: ignore[no-untyped-def]
        return b"{}"


async def provide(server: FakeServer, claims: Claims, *, leads: bool = True) -> None:
    async with Writes(server.access) as client:
        async with asyncio.timeout(60):
            await bind_pod_volumes(client, PodVolumes("n1", ["a/data"], {}), claims, lambda: leads)


async def test_it_is_waited_for(server: FakeServer) -> None:
    await provide(server, Claims(CLAIM, CLAIM, TOLD, BOUND))


async def test_a_claim_that_is_deleted_is_not_waited_for(server: FakeServer) -> None:
    with pytest.raises(ApiError, match="was deleted"):
        await provide(server, Claims(CLAIM, TOLD, None))


async def test_a_node_that_the_provisioner_gave_back_is_left(server: FakeServer) -> None:
    with pytest.raises(ApiError, match="create a volume for claim"):
        await provide(server, Claims(CLAIM, TOLD, CLAIM))


async def test_who_has_lost_the_lease_waits_no_more(server: FakeServer) -> None:
    with pytest.raises(LeaseLost):
        await provide(server, Claims(CLAIM), leads=False)


async def test_a_volume_is_kept_only_as_it_was_seen() -> None:
    request = prebind_volume("disk", "7", "a/data", "u1")
    assert request.path == "/api/v1/persistentvolumes/disk"
    body = request.body or {}
    assert body["metadata"]["resourceVersion"] == "7"
    assert body["spec"]["claimRef"]["uid"] == "u1"
