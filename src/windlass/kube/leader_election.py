"""Leadership by a `coordination.k8s.io` Lease, as client-go's leader election does it.

Used by `scheduler.scheduler`. A replica leads only for `renew_seconds` after it sent its last successful renewal; other
replicas wait for the whole of `lease_seconds` without a renewal, and what the replica has begun to write ends before.
Times are monotonic and go on while a process is stopped, so that a process which wakes up late knows at once that it
leads no more.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
import time
from typing import Any

import msgspec

from windlass.kube.client import KubeClient
from windlass.kube.errors import ApiError, Conflict, Forbidden, NotFound, ServerUnavailable, decode_answer
from windlass.kube.events import micro_time
from windlass.kube.request import Request
from windlass.kube.resources import LEASES, NAMESPACES
from windlass.kube.write_requests import create_namespace, create_object
from windlass.model.errors import ClusterUnreachable
from windlass.model.names.kubernetes import COORDINATION_API_VERSION

log = logging.getLogger(__name__)


class NamespaceMissing(ClusterUnreachable):
    """The namespace of the Lease doesn't exist and may not be created, so that no replica can ever lead."""


class LeaderElectionConfig(msgspec.Struct, frozen=True):
    namespace: str
    name: str
    identity: str
    lease_seconds: float = 15.0
    annotations: dict[str, str] = msgspec.field(default_factory=dict)
    """Annotations of the Lease while this replica holds it."""

    @property
    def renew_seconds(self) -> float:
        """A leader that could not renew for so long stops, well before another replica may take over."""
        return self.lease_seconds * 2 / 3

    @property
    def retry_seconds(self) -> float:
        return self.lease_seconds * 2 / 15

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


class _Items(msgspec.Struct, frozen=True):
    items: list[msgspec.Raw] | None


class _LeaseSpec(msgspec.Struct, frozen=True, rename="camel"):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    lease_transitions: int | None = None
    renew_time: str | None = None


class _Lease(msgspec.Struct, frozen=True):
    """What is read of a Lease; the rest is written back as it is."""

    metadata: dict[str, Any]
    spec: _LeaseSpec | None = None


class LeaderElector:
    def __init__(self, client: KubeClient, config: LeaderElectionConfig) -> None:
        self._client, self._config = client, config
        self._held_until = self._expires_at = 0.0
        self._seen: tuple[str, str] = ("", "")
        """Holder and renewTime as last observed; `_seen_at` is when they changed."""
        self._seen_at = 0.0

    @property
    def is_leader(self) -> bool:
        return time.monotonic() < self._held_until

    @property
    def seconds_left(self) -> float:
        """Until another replica can lead: a write that has begun has to end within them."""
        return max(0.0, self._expires_at - time.monotonic())

    async def acquire(self) -> None:
        """Returns once this replica leads."""
        while not await self._try():
            await asyncio.sleep(self._config.retry_seconds * random.uniform(1.0, 1.2))
        log.info("leading as %s", self._config.identity)

    async def renew(self) -> None:
        """Renews until that has failed for `renew_seconds`, then returns; nothing may be written afterwards."""
        while self.is_leader:
            await asyncio.sleep(self._config.retry_seconds)
            if self.is_leader:
                await self._try()
        log.warning("the lease is lost")

    async def release(self) -> None:
        """Gives the Lease up, so that another replica can lead at once; also if it was not renewed for a while."""
        if not self._held_until:
            return
        self._held_until = 0.0
        try:
            lease = await self._get()
            if lease is not None and lease["spec"].get("holderIdentity") == self._config.identity:
                await self._put(lease, {**lease["spec"], "holderIdentity": "", "leaseDurationSeconds": 1})
        except (ApiError, ServerUnavailable) as error:
            log.info("the lease was not released: %s", error)

    async def _try(self) -> bool:
        """One attempt to acquire or renew the Lease."""
        began = time.monotonic()
        try:
            async with asyncio.timeout(self._config.renew_seconds):
                won = await self._compete()
        except (ApiError, ServerUnavailable, TimeoutError) as error:
            if not isinstance(error, Conflict):
                log.warning("lease %s: %s", self._config.key, error or "no answer in time")
            if isinstance(error, NotFound | Forbidden) and not self.is_leader:
                await self._ensure_namespace(error)
            return self.is_leader
        self._held_until = began + self._config.renew_seconds if won else 0.0
        self._expires_at = began + self._config.lease_seconds if won else 0.0
        return won

    async def _compete(self) -> bool:
        config = self._config
        lease = await self._get()
        spec: dict[str, Any] = {
            "holderIdentity": config.identity,
            "leaseDurationSeconds": max(1, math.ceil(config.lease_seconds)),
            "acquireTime": micro_time(),
            "renewTime": micro_time(),
            "leaseTransitions": 0,
        }
        if lease is None:
            metadata = {"name": config.name, "annotations": config.annotations}
            body = {"apiVersion": COORDINATION_API_VERSION, "kind": "Lease", "metadata": metadata}
            await self._client.send(create_object(LEASES, config.namespace, {**body, "spec": spec}))
            return True
        known = lease.get("spec") or {}
        holder = known.get("holderIdentity") or ""
        if holder == config.identity:
            spec |= {key: known[key] for key in ("acquireTime", "leaseTransitions") if key in known}
        elif holder and not self._has_expired(known):
            return False
        else:
            spec["leaseTransitions"] = int(known.get("leaseTransitions") or 0) + 1
        await self._put(lease, spec)
        return True

    async def _ensure_namespace(self, refusal: ApiError) -> None:
        """Creates the namespace of the Lease if it is missing. Raises `NamespaceMissing` if that is forbidden."""
        name = self._config.namespace
        try:
            if not await self._lacks_namespace(refusal):
                return
            await self._client.send(create_namespace(name))
            log.info("created namespace %s for the lease", name)
        except Conflict:
            return
        except Forbidden as error:
            raise NamespaceMissing(
                f"namespace {name} doesn't exist, and the lease of the scheduler belongs there; creating it was "
                f"refused: {error.status.message or error} (kubectl create namespace {name}; or name another one "
                "with --lease-namespace; or, for a single replica, --no-leader-elect)"
            ) from None
        except (ApiError, ServerUnavailable) as error:
            log.warning("namespace %s: %s", name, error)

    async def _lacks_namespace(self, refusal: ApiError) -> bool:
        """403 can mean a missing namespace too: RBAC grants in a namespace are deleted with it."""
        only = (("fieldSelector", f"metadata.name={self._config.namespace}"),)
        try:
            found = await self._client.read(Request("GET", NAMESPACES.collection, only), _Items)
        except Forbidden:
            return isinstance(refusal, NotFound)
        return not found.items

    def _has_expired(self, spec: dict[str, Any]) -> bool:
        """Whether the holder has not renewed in time, by our own clock: the holder's may be wrong."""
        now = time.monotonic()
        seen = (str(spec.get("holderIdentity")), str(spec.get("renewTime")))
        if seen != self._seen:
            self._seen, self._seen_at = seen, now
        return now > self._seen_at + float(spec.get("leaseDurationSeconds") or self._config.lease_seconds)

    async def _get(self) -> dict[str, Any] | None:
        try:
            found = await self._client.send(Request("GET", LEASES.path(self._config.key)))
        except NotFound:
            return None
        decode_answer(found, _Lease, "lease")
        lease: dict[str, Any] = msgspec.json.decode(found)
        return lease

    async def _put(self, lease: dict[str, Any], spec: dict[str, Any]) -> None:
        metadata = lease["metadata"]
        annotations = {**(metadata.get("annotations") or {}), **self._config.annotations}
        body = {**lease, "metadata": {**metadata, "annotations": annotations}, "spec": spec}
        await self._client.send(Request("PUT", LEASES.path(self._config.key), body=body))
