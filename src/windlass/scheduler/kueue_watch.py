"""Whether a Kueue controller is live here: then quota is its business, and placing what it admitted is ours.

Run by `scheduler.scheduler`. Kueue shows itself by the lease that its leader renews, and by the webhooks through
which it sees every queued Job. Either is enough: a Kueue that restarts must not find its queues decided by somebody
else.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

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
KUEUE_LEASE = "kueue-system/c1f6bfd2.kueue.x-k8s.io"
KUEUE_WEBHOOKS_PATH = Resource(
    "ValidatingWebhookConfiguration",
    "validatingwebhookconfigurations",
    "admissionregistration.k8s.io",
    "v1",
    namespaced=False,
).path("kueue-validating-webhook-configuration")


async def kueue_is_live(client: KubeClient) -> bool:
    lease = await _look(client, LEASES.path(KUEUE_LEASE))
    if lease is not None:
        spec = lease.get("spec") or {}
        renewed = parse_timestamp(spec.get("renewTime", ""))
        if spec.get("holderIdentity") and time.time() < renewed + 2 * spec.get("leaseDurationSeconds", 15):
            return True
    return await _look(client, KUEUE_WEBHOOKS_PATH) is not None


async def watch_kueue(client: KubeClient, cache: SchedulerCache, detected: asyncio.Event) -> None:
    """Tells the world who decides on queues; `known` is set once that is known. Until cancelled."""
    backoff = Backoff(most=POLL_SECONDS)
    while True:
        try:
            live = await kueue_is_live(client)
            if live != cache.kueue_is_live:
                log.info("Kueue %s", "is live: it decides on quota" if live else "is not live: quota is ours")
                cache.kueue_is_live = live
                cache.reevaluate_queue_ownership()
            detected.set()
            backoff.reset()
            pause = POLL_SECONDS
        except (ApiError, ServerUnavailable) as error:
            pause = backoff.next(getattr(error, "retry_after", 0.0))
            log.warning("whether Kueue is live can't be told: %s; trying again in %.1f s", error, pause)
        await asyncio.sleep(pause)


async def _look(client: KubeClient, path: str) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = msgspec.json.decode(await client.send(Request("GET", path)))
    except (NotFound, Forbidden):
        return None  # where we may not look, nobody has told us to beware of Kueue
    return found
