"""Whether Windlass is frozen belongs to what is collected from a cluster, wherever its scheduler has its Lease."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from windlass.dump.collect import CollectedCluster, collect_freeze
from windlass.dump.raw_objects import ObjectHeader, RawObject
from windlass.kube.errors import NotFound, Status
from windlass.kube.freeze import FREEZE_CONFIG_MAP, FROZEN, OBEYED_ANNOTATION, FreezeState, freeze_object, freeze_path
from windlass.kube.request import Request
from windlass.model.meta import ObjectMeta


class Server:
    """Has the ConfigMap in one namespace only."""

    def __init__(self, namespace: str) -> None:
        self._body = msgspec.json.encode(freeze_object(namespace, FreezeState(FROZEN)))
        self._path = freeze_path(namespace)

    async def send(self, request: Request) -> bytes:
        if request.path != self._path:
            raise NotFound(404, Status())
        return self._body


def test_the_state_is_read_where_a_lease_says_that_it_is_obeyed() -> None:
    metadata = ObjectMeta(name="windlass", namespace="gpu", annotations={OBEYED_ANNOTATION: FREEZE_CONFIG_MAP})
    lease = RawObject(ObjectHeader(api_version="coordination.k8s.io/v1", kind="Lease", metadata=metadata), "", {})
    for objects, namespace in (([lease], "gpu"), ([], "windlass-system")):
        found = CollectedCluster(list(objects))
        client: Any = Server(namespace)
        asyncio.run(collect_freeze(client, found))
        assert [obj.header.kind for obj in found.objects[len(objects) :]] == ["ConfigMap"]
        assert not found.not_readable
