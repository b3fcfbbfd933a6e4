"""Leadership by a `coordination.k8s.io` Lease, as client-go's leader election does it.

`scheduler.scheduler` competes through here. A leader counts as one only for `renew_seconds` after it sent its last
renewal that succeeded; others wait for the whole of `lease_seconds` without a renewal. The clock that counts is
monotonic and goes on while a process is stopped, so one that wakes up late knows at once that it leads no more.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from typing import Any

import msgspec

from windlass.kube.client import KubeClient
from windlass.kube.errors import ApiError, Conflict, Forbidden, NotFound, ServerUnavailable
from windlass.kube.events import micro_time
from windlass.kube.request import Request
from windlass.kube.resources import LEASES, NAMESPACES
from windlass.kube.write_requests import create_namespace, create_object
from windlass.model.errors import ClusterUnreachable
from windlass.model.names.kubernetes import COORDINATION_API_VERSION

log = logging.getLogger(__name__)


class NamespaceMissing(ClusterUnreachable):
    """The lease has no place to be, and we may not make one: nobody could ever lead."""


class LeaderElectionConfig(msgspec.Struct, frozen=True):
    namespace: str
    name: str
    identity: str
    lease_seconds: float = 15.0
    annotations: dict[str, str] = msgspec.field(default_factory=dict)
    """What the Lease says of its holder."""

    @property
    def renew_seconds(self) -> float:
        """A leader that could not renew for so long has lost, well before anybody else may take over."""
        return self.lease_seconds * 2 / 3

    @property
    def retry_seconds(self) -> float:
        return self.lease_seconds * 2 / 15

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


class LeaderElector:
    def __init__(self, client: KubeClient, config: LeaderElectionConfig) -> None:
        self._client, self._terms = client, config
        self._held_until = 0.0
        self._seen: tuple[str, str] = ("", "")
        """Holder and renewal as last observed, and when that was."""
        self._seen_at = 0.0

    @property
    def is_leader(self) -> bool:
        return time.monotonic() < self._held_until

    async def acquire(self) -> None:
        """Returns when we lead."""
        while not await self._try():
            await asyncio.sleep(self._terms.retry_seconds * random.uniform(1.0, 1.2))
        log.info("leading as %s", self._terms.identity)

    async def renew(self) -> None:
        """Renews until that has failed for too long, then returns: nothing may be written after it."""
        while self.is_leader:
            await asyncio.sleep(self._terms.retry_seconds)
            if self.is_leader:
                await self._try()
        log.warning("the lease is lost")

    async def release(self) -> None:
        """Lets the next one begin at once."""
        if not self.is_leader:
            return
        self._held_until = 0.0
        try:
            lease = await self._get()
            if lease is not None and lease["spec"].get("holderIdentity") == self._terms.identity:
                await self._put(lease, {**lease["spec"], "holderIdentity": "", "leaseDurationSeconds": 1})
        except (ApiError, ServerUnavailable) as error:
            log.info("the lease was not released: %s", error)

    async def _try(self) -> bool:
        """One attempt to get or keep it."""
        began = time.monotonic()
        try:
            async with asyncio.timeout(self._terms.renew_seconds):
                won = await self._compete()
        except (ApiError, ServerUnavailable, TimeoutError) as error:
            if not isinstance(error, Conflict):
                log.warning("lease %s: %s", self._terms.key, error or "no answer in time")
            if isinstance(error, NotFound | Forbidden) and not self.is_leader:
                await self._need_namespace(error)
            return self.is_leader
        self._held_until = began + self._terms.renew_seconds if won else 0.0
        return won

    async def _compete(self) -> bool:
        terms = self._terms
        lease = await self._get()
        spec: dict[str, Any] = {
            "holderIdentity": terms.identity,
            "leaseDurationSeconds": max(1, round(terms.lease_seconds)),
            "acquireTime": micro_time(),
            "renewTime": micro_time(),
            "leaseTransitions": 0,
        }
        if lease is None:
            metadata = {"name": terms.name, "annotations": terms.annotations}
            body = {"apiVersion": COORDINATION_API_VERSION, "kind": "Lease", "metadata": metadata}
            await self._client.send(create_object(LEASES, terms.namespace, {**body, "spec": spec}))
            return True
        known = lease.get("spec") or {}
        holder = known.get("holderIdentity") or ""
        if holder == terms.identity:
            spec |= {key: known[key] for key in ("acquireTime", "leaseTransitions") if key in known}
        elif holder and not self._is_over(known):
            return False
        else:
            spec["leaseTransitions"] = int(known.get("leaseTransitions") or 0) + 1
        await self._put(lease, spec)
        return True

    async def _need_namespace(self, refusal: ApiError) -> None:
        """Makes the namespace of the lease, if it is missing; or says once and for all that it is."""
        name = self._terms.namespace
        try:
            if not await self._lacks_namespace(refusal):
                return
            await self._client.send(create_namespace(name))
            log.info("namespace %s was not there, and has been created for the lease", name)
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
        """A right that was given in a namespace is gone with it, so that 403 can mean the same as 404."""
        only = (("fieldSelector", f"metadata.name={self._terms.namespace}"),)
        try:
            found = await self._client.send(Request("GET", NAMESPACES.collection, only))
        except Forbidden:
            return isinstance(refusal, NotFound)
        return not msgspec.json.decode(found)["items"]

    def _is_over(self, spec: dict[str, Any]) -> bool:
        """Whether its holder has let it lapse, by our own clock: others' clocks may be wrong."""
        now = time.monotonic()
        seen = (str(spec.get("holderIdentity")), str(spec.get("renewTime")))
        if seen != self._seen:
            self._seen, self._seen_at = seen, now
        return now > self._seen_at + float(spec.get("leaseDurationSeconds") or self._terms.lease_seconds)

    async def _get(self) -> dict[str, Any] | None:
        try:
            found = await self._client.send(Request("GET", LEASES.path(self._terms.key)))
        except NotFound:
            return None
        lease: dict[str, Any] = msgspec.json.decode(found)
        return lease

    async def _put(self, lease: dict[str, Any], spec: dict[str, Any]) -> None:
        metadata = lease["metadata"]
        annotations = {**(metadata.get("annotations") or {}), **self._terms.annotations}
        body = {**lease, "metadata": {**metadata, "annotations": annotations}, "spec": spec}
        await self._client.send(Request("PUT", LEASES.path(self._terms.key), body=body))
