"""Detects a live Kueue controller. If there is one, Kueue decides on quota and Windlass places what it has admitted.

Run by `scheduler.scheduler`. The signs are the lease that Kueue's leader renews, and the webhook configuration through
which it sees every queued Job. Either is enough: while Kueue restarts, its queues must not be decided on.
"""

from __future__ import annotations

import asyncio
import logging
import time

import msgspec

from windlass.kube.backoff import Backoff
from windlass.kube.client import KubeClient
from windlass.kube.errors import ApiError, Forbidden, NotFound, ServerUnavailable
from windlass.kube.request import Request
from windlass.kube.resources import LEASES, Resource
from windlass.model.times import parse_timestamp
from windlass.scheduler.cache import SchedulerCache

log = logging.getLogger(__name__)

POLL_SECONDS = 15.0
POLL_SECONDS_WITHOUT_KUEUE = 5.0
"""Two that admit lend the same quota: a Kueue that is installed later has to be seen before it begins."""
KUEUE_LEASE = "kueue-system/c1f6bfd2.kueue.x-k8s.io"
KUEUE_WEBHOOKS_PATH = Resource(
    "ValidatingWebhookConfiguration",
    "validatingwebhookconfigurations",
    "admissionregistration.k8s.io",
    "v1",
    namespaced=False,
).path("kueue-validating-webhook-configuration")


class _LeaseSpec(msgspec.Struct, frozen=True, rename="camel"):
    holder_identity: str | None = None
    renew_time: str | None = None
    lease_duration_seconds: int | None = None


class _Found(msgspec.Struct, frozen=True):
    """A Lease, or another object, of which only that it is there counts."""

    spec: _LeaseSpec | None = None


async def kueue_is_live(client: KubeClient) -> bool:
    lease = await _get_or_none(client, LEASES.path(KUEUE_LEASE))
    if lease is not None:
        spec = lease.spec or _LeaseSpec()
        renewed = parse_timestamp(spec.renew_time or "")
        if spec.holder_identity and time.time() < renewed + 2 * (spec.lease_duration_seconds or 15):
            return True
    return await _get_or_none(client, KUEUE_WEBHOOKS_PATH) is not None


async def watch_kueue(client: KubeClient, cache: SchedulerCache, detected: asyncio.Event) -> None:
    """Keeps `cache.responsibility.kueue_is_live` up to date until cancelled; sets `detected` after the first answer."""
    backoff = Backoff(most=POLL_SECONDS)
    while True:
        try:
            live = await kueue_is_live(client)
            if live != cache.responsibility.kueue_is_live:
                log.info(
                    "Kueue is %s",
                    "live and decides on quota" if live else "not live: Windlass decides on quota",
                )
                cache.responsibility.kueue_is_live = live
                cache.reevaluate_queue_ownership()
            detected.set()
            backoff.reset()
            pause = POLL_SECONDS if live else POLL_SECONDS_WITHOUT_KUEUE
        except (ApiError, ServerUnavailable) as error:
            pause = backoff.next(getattr(error, "retry_after", 0.0))
            log.warning("can't detect whether Kueue is live: %s; trying again in %.1f s", error, pause)
        await asyncio.sleep(pause)


async def _get_or_none(client: KubeClient, path: str) -> _Found | None:
    try:
        return await client.read(Request("GET", path), _Found)
    except (NotFound, Forbidden):
        return None  # an installation without Kueue grants no right to read its lease and webhooks
