"""A refusal says something of the state: it is given once that is durable, as any other answer."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import msgspec
import pytest
from tests.embedded.in_process_cluster import InProcessCluster
from tests.worlds.virtual_client import InProcessKubeClient, Network
from tests.worlds.virtual_cluster import identity

from windlass.embedded.server.server import ApiServer
from windlass.kube.errors import ApiError
from windlass.kube.request import Request

MAPS = "/api/v1/namespaces/default/configmaps"
MAP: dict[str, Any] = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}}
STALE = {**MAP, "metadata": {"name": "m", "resourceVersion": "1"}}


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (("POST", MAPS, MAP), 409),
        (("PUT", f"{MAPS}/m", STALE), 409),
        (("GET", f"{MAPS}/gone", None), 404),
        (("DELETE", f"{MAPS}/gone", None), 404),
    ],
)
def test_a_refusal_waits_for_what_it_says_to_be_durable(request_: tuple[str, str, Any], code: int) -> None:
    cluster = InProcessCluster()
    cluster.verbs.create("configmaps", "default", MAP)
    cluster.verbs.create("configmaps", "default", {"metadata": {"name": "gone"}})
    cluster.verbs.delete("configmaps", "default", "gone")
    store = cluster.verbs.registry.store
    store.durable_version = 0  # as if the disk had not answered yet

    async def play() -> None:
        client = InProcessKubeClient(ApiServer(cluster.verbs.registry, identity()), Network(Random(1), latency=0.0))
        method, path, body = request_
        sent = Request(method, path, (), msgspec.Raw(msgspec.json.encode(body)), "application/json")
        answer = asyncio.create_task(client._send_once(sent))
        while not store._durable_waiters and not answer.done():
            await asyncio.sleep(0)
        assert not answer.done()
        store.on_committed(store.version)
        with pytest.raises(ApiError) as refused:
            await answer
        assert refused.value.code == code

    asyncio.run(play())
