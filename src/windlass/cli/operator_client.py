"""Reads and writes the operator's objects for the commands `stack`, `change`, `repair` and `quarantine`."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

from windlass.cli.cluster_option import run_with_client
from windlass.model.errors import ClusterUnreachable, InputError
from windlass.model.unstructured import Unstructured

if TYPE_CHECKING:
    from windlass.kube.client import KubeClient

T = TypeVar("T")
NOT_INSTALLED = (
    "the cluster doesn't have the operator's kinds (windlass install operator | kubectl apply --server-side -f -)"
)


def run(access: tuple[str, str], use: Callable[[KubeClient], Awaitable[T]]) -> T:
    return run_with_client(*access, use)


async def list_objects(client: KubeClient, kind: str) -> list[Any]:
    """Decoded, by name; those that can't be understood are left out."""
    from windlass.kube.errors import NotFound
    from windlass.operator.kinds.codec import decode_operator_object
    from windlass.operator.resources import OPERATOR_RESOURCES

    resource = OPERATOR_RESOURCES[kind]
    try:
        items = (await client.get(resource.collection))["items"] or ()
    except NotFound:
        raise ClusterUnreachable(NOT_INSTALLED) from None
    found = []
    for item in items:
        try:
            found.append(decode_operator_object({**item, "apiVersion": resource.api_version, "kind": kind}))
        except InputError:
            continue
    return sorted(found, key=lambda obj: obj.metadata.name)


async def get_object(client: KubeClient, kind: str, name: str) -> Any:
    """Raises an `InputError` that names those there are."""
    found = await list_objects(client, kind)
    for obj in found:
        if obj.metadata.name == name:
            return obj
    names = ", ".join(obj.metadata.name for obj in found[:8]) or "none"
    raise InputError(f"there is no {kind} {name!r}", remedy=f"there are: {names}")


async def create(client: KubeClient, kind: str, tree: Unstructured) -> None:
    from windlass.kube.errors import Conflict
    from windlass.kube.request import Request
    from windlass.operator.resources import OPERATOR_RESOURCES

    resource = OPERATOR_RESOURCES[kind]
    try:
        await client.send(Request("POST", resource.collection, body=tree))
    except Conflict:
        raise InputError(f"there is a {kind} {tree['metadata']['name']!r} already", remedy="rename it") from None


async def patch_spec(client: KubeClient, kind: str, name: str, spec: Unstructured) -> None:
    from windlass.kube.request import MERGE_PATCH, Request
    from windlass.operator.resources import OPERATOR_RESOURCES

    path = OPERATOR_RESOURCES[kind].path(name)
    await client.send(Request("PATCH", path, body={"spec": spec}, content_type=MERGE_PATCH))


async def command(client: KubeClient, kind: str, name: str, verb: str, reason: str) -> None:
    """Writes what a person asks for; the operator does it once."""
    from windlass.cli.freeze import user_name

    by = await user_name(client)
    body = {"id": uuid.uuid4().hex[:12], "verb": verb, "by": by, "reason": reason}
    await patch_spec(client, kind, name, {"command": body})
