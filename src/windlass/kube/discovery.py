"""Finds which of the kinds that Windlass reads a server has, and in which version: CRDs come and go.

Called by `kube.informers` at the start and periodically, and by `dump.collect`. `find_resource` finds where the objects
of any kind are, for `diagnose.server_trial`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from windlass.kube.client import KubeClient
from windlass.kube.errors import ApiError, NotFound
from windlass.kube.request import Request
from windlass.kube.resources import Kind, Resource


class _Version(msgspec.Struct, frozen=True):
    version: str


class _Group(msgspec.Struct, frozen=True):
    name: str
    versions: tuple[_Version, ...] = ()


class _GroupList(msgspec.Struct, frozen=True):
    groups: tuple[_Group, ...]


class _ApiResource(msgspec.Struct, frozen=True):
    name: str
    kind: str
    namespaced: bool = True


class _ResourceList(msgspec.Struct, frozen=True):
    resources: tuple[_ApiResource, ...]


async def discover(client: KubeClient, kinds: Sequence[Kind]) -> list[Resource]:
    """The kinds that the server has now, in the given order, each in the best version."""
    answer = await client.read(Request("GET", "/apis"), _GroupList)
    served = {group.name: {served_version.version for served_version in group.versions} for group in answer.groups}
    served[""] = {"v1"}
    wanted = dict.fromkeys(
        (kind.group, version) for kind in kinds for version in kind.versions if version in served.get(kind.group, ())
    )
    lists = await asyncio.gather(*(_plurals(client, group, version) for group, version in wanted))
    there = dict(zip(wanted, lists, strict=True))
    found = []
    for kind in kinds:
        versions = [version for version in kind.versions if kind.plural in there.get((kind.group, version), ())]
        if versions:
            found.append(kind.resource_at(versions[0]))
    return found


async def find_resource(client: KubeClient, api_version: str, kind: str) -> Resource | None:
    """Where the server has objects of this kind; None if it has none."""
    group, _, version = api_version.rpartition("/")
    try:
        answer = await _resources(client, group, version)
    except NotFound:
        return None
    served = (row for row in answer.resources if row.kind == kind and "/" not in row.name)  # no subresources
    found = next(served, None)
    return None if found is None else Resource(kind, found.name, group, version, found.namespaced)


async def _resources(client: KubeClient, group: str, version: str) -> _ResourceList:
    path = f"/apis/{group}/{version}" if group else f"/api/{version}"
    return await client.read(Request("GET", path), _ResourceList)


async def _plurals(client: KubeClient, group: str, version: str) -> frozenset[str]:
    try:
        answer = await _resources(client, group, version)
    except NotFound:
        return frozenset()  # the group went away between two questions
    except ApiError as error:
        if error.code == 503 and group:
            return frozenset()  # an aggregated API whose backend is down must not hide the other kinds
        raise
    return frozenset(resource.name for resource in answer.resources)
