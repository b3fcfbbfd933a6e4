"""Asks the engine where the work of nodes would go that a change wants to drain: one reading of the cluster for all.

Called by `operator.controller`, beside its loop: a large cluster takes seconds. The answer is about this moment and one
node at a time; what goes wrong is in the reading.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

import msgspec

from windlass.dump.configuration import CONFIG_MAP_SUFFIX, choose_configuration, published_configurations
from windlass.kube.client import KubeClient
from windlass.kube.discovery import discover
from windlass.kube.errors import NotFound
from windlass.kube.request import Request
from windlass.kube.resources import CONFIG_MAPS, WATCHED_KINDS, Resource
from windlass.model.codec import Unreadable, decode_kind
from windlass.model.configuration import Settings
from windlass.model.errors import WindlassError
from windlass.operator.observed import RoomQuestion, RoomReading
from windlass.operator.resources import SCHEDULER

PAGE_SIZE = 500


class _ListMeta(msgspec.Struct, frozen=True):
    continue_: str = msgspec.field(default="", name="continue")


class _Page(msgspec.Struct, frozen=True):
    metadata: _ListMeta = _ListMeta()
    items: tuple[msgspec.Raw, ...] | None = None


Raws = list[tuple[Resource, tuple[msgspec.Raw, ...]]]


async def read_rooms(
    client: KubeClient, questions: Sequence[RoomQuestion], scheduler_namespace: str
) -> dict[str, RoomReading]:
    """By node."""
    now = int(time.time())
    try:
        settings = await _settings(client, scheduler_namespace)
        raws = [page for kind in await discover(client, WATCHED_KINDS) for page in await _pages(client, kind)]
        return await asyncio.to_thread(_answers, raws, settings, questions, now)
    except (WindlassError, msgspec.MsgspecError) as error:
        return {question.node: RoomReading(now, error=str(error)) for question in questions}


def _answers(raws: Raws, settings: Settings, questions: Sequence[RoomQuestion], now: int) -> dict[str, RoomReading]:
    from windlass.operator.room import work_without_room  # the engine is loaded when it is first asked

    found = (decode_kind(raw, kind.kind, kind.api_version) for kind, items in raws for raw in items)
    objects = [obj for obj in found if not isinstance(obj, Unreadable)]
    return {
        question.node: RoomReading(now, work_without_room(objects, settings, question, now)) for question in questions
    }


async def _pages(client: KubeClient, resource: Resource) -> Raws:
    found: Raws = []
    more = ""
    while True:
        query = (("limit", str(PAGE_SIZE)), *((("continue", more),) if more else ()))
        page = await client.read(Request("GET", resource.collection, query), _Page)
        found.append((resource, page.items or ()))
        more = page.metadata.continue_
        if not more:
            return found


async def _settings(client: KubeClient, namespace: str) -> Settings:
    """As the scheduler publishes them; without one, the defaults."""
    key = f"{namespace}/{SCHEDULER}{CONFIG_MAP_SUFFIX}"
    try:
        body = await client.send(Request("GET", CONFIG_MAPS.path(key)))
    except NotFound:
        return Settings()
    tree = {"kind": "ConfigMap", **msgspec.json.decode(body)}
    return choose_configuration(published_configurations([tree]), ()).settings
