"""What the scheduler writes beside its decisions: collected as it decides, written soon after by a task of its own.

`queue_status`, `run_time_writer` and `persisted_state` derive from it; `scheduler` runs them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from windlass.kube.client import KubeClient
from windlass.kube.errors import ApiError, NotFound, NotSent, ServerUnavailable
from windlass.kube.request import Request
from windlass.kube.resources import Resource
from windlass.scheduler.cache import SchedulerCache

log = logging.getLogger(__name__)


class BackgroundWriter:
    interval_seconds: float
    """Between two rounds, so that what changes with every decision is not written with every decision."""

    def __init__(
        self,
        client: KubeClient,
        cache: SchedulerCache,
        may_write: Callable[[], bool],
        resource_for: Callable[[str, str], Resource | None],
    ) -> None:
        self._client, self._cache = client, cache
        self._may_write, self._resource_for = may_write, resource_for
        self._has_work = asyncio.Event()

    async def run(self) -> None:
        """Runs until cancelled."""
        while True:
            await self._has_work.wait()
            self._has_work.clear()
            await self.flush()
            await asyncio.sleep(self.interval_seconds)

    async def flush(self) -> None:
        """Writes what was collected; what fails is kept for the next round."""
        raise NotImplementedError

    async def _send(self, request: Request, what: str) -> bool:
        """Whether it was written. An object that is gone, and a lease that was lost, are nothing to tell."""
        try:
            await self._client.send(request, self._may_write)
        except (NotFound, NotSent):
            return False
        except (ApiError, ServerUnavailable) as error:
            log.warning("can't write %s: %s", what, error)
            return False
        return True
