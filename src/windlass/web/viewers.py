"""Who looks at the page of a real cluster, and what the cluster lets them see: TokenReview, SubjectAccessReview.

`web.token_access` asks for the viewer of a bearer token. A viewer may see the work of the namespaces whose pods it may
list, and nodes by name if it may list nodes; of everything else, the fleet's sums without names. What the cluster
answered counts for `VALID_SECONDS`.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Callable
from typing import Any

import msgspec

from windlass.kube.client import KubeClient
from windlass.kube.request import Request

VALID_SECONDS = 60.0
MAX_KNOWN = 1024
MAX_AT_ONCE = 16
REVIEW_PATH = "/apis/authentication.k8s.io/v1/tokenreviews"
ACCESS_PATH = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


class Viewer(msgspec.Struct, frozen=True):
    name: str = ""
    namespaces: frozenset[str] | None = None
    """None: all of them."""
    sees_nodes: bool = True
    """By name; else nodes have made-up names."""

    @property
    def sees_everything(self) -> bool:
        return self.namespaces is None and self.sees_nodes

    @property
    def sees_nothing(self) -> bool:
        return self.namespaces is not None and not self.namespaces


EVERYTHING = Viewer()


class _User(msgspec.Struct, frozen=True):
    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: dict[str, tuple[str, ...]] = {}


class _ReviewStatus(msgspec.Struct, frozen=True):
    authenticated: bool = False
    user: _User = _User()


class _TokenReview(msgspec.Struct, frozen=True):
    status: _ReviewStatus = _ReviewStatus()


class _AccessStatus(msgspec.Struct, frozen=True):
    allowed: bool = False


class _AccessReview(msgspec.Struct, frozen=True):
    status: _AccessStatus = _AccessStatus()


class Viewers:
    def __init__(
        self, client: KubeClient, namespaces: Callable[[], set[str]], clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`namespaces`: those that there are now."""
        self._client, self._namespaces, self._clock = client, namespaces, clock
        self._known: dict[bytes, tuple[float, Viewer | None]] = {}
        self._limit = asyncio.Semaphore(MAX_AT_ONCE)

    async def of_token(self, token: str) -> Viewer | None:
        """None: the cluster does not know the token. Raises the client's errors where it can't be asked."""
        key = hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
        found = self._known.get(key)
        if found is not None and self._clock() - found[0] < VALID_SECONDS:
            return found[1]
        viewer = await self._ask(token)
        self._known.pop(key, None)
        while len(self._known) >= MAX_KNOWN:
            del self._known[next(iter(self._known))]
        self._known[key] = (self._clock(), viewer)
        return viewer

    async def _ask(self, token: str) -> Viewer | None:
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
        async with self._limit:  # strangers may send any number of tokens, which the API server has to look at
            review = await self._client.read(Request("POST", REVIEW_PATH, body=body), _TokenReview)
        if not review.status.authenticated or not review.status.user.username:
            return None
        user = review.status.user
        sees_pods, sees_nodes = await asyncio.gather(self._may_list(user, "pods"), self._may_list(user, "nodes"))
        if sees_pods:
            return Viewer(user.username, None, sees_nodes)
        names = sorted(self._namespaces())
        allowed = await asyncio.gather(*(self._may_list(user, "pods", name) for name in names))
        visible = frozenset(name for name, is_allowed in zip(names, allowed, strict=True) if is_allowed)
        return Viewer(user.username, visible, sees_nodes)

    async def _may_list(self, user: _User, resource: str, namespace: str = "") -> bool:
        attributes: dict[str, Any] = {"verb": "list", "resource": resource, "version": "v1"}
        if namespace:
            attributes["namespace"] = namespace
        spec = {
            "user": user.username,
            "uid": user.uid,
            "groups": user.groups,
            "extra": user.extra,
            "resourceAttributes": attributes,
        }
        body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
        async with self._limit:
            review = await self._client.read(Request("POST", ACCESS_PATH, body=body), _AccessReview)
        return review.status.allowed
