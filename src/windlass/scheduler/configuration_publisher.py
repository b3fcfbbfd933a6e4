"""Publishes the running scheduler's configuration in the cluster, as a ConfigMap beside its Lease.

`scheduler.scheduler` runs it. `why`, `plan` and `check` read the ConfigMap (`dump.configuration`) and so use the same
configuration. The hash annotation on the Lease is written by the leader election.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import yaml

from windlass.dump.configuration import CONFIG_MAP_KEY, CONFIG_MAP_SUFFIX, PUBLISHED_LABEL
from windlass.kube.client import KubeClient
from windlass.kube.errors import ApiError, NotSent, ServerUnavailable
from windlass.kube.request import Request
from windlass.kube.resources import CONFIG_MAPS
from windlass.kube.write_requests import apply_object
from windlass.model.configuration import Settings
from windlass.model.configuration_document import settings_document
from windlass.scheduler.options import SchedulerOptions

log = logging.getLogger(__name__)

REPUBLISH_SECONDS = 300.0
"""Repeats the write, so that a ConfigMap that was changed or deleted is restored."""
RETRY_SECONDS = 5.0
"""Pause after a failed write, and while this replica may not write."""


class ConfigurationPublisher:
    def __init__(self, client: KubeClient, options: SchedulerOptions, may_write: Callable[[], bool]) -> None:
        self._client, self._may_write = client, may_write
        self._key = f"{options.lease_namespace}/{options.lease_name}{CONFIG_MAP_SUFFIX}"
        self._request = config_map_request(self._key, options.settings)
        self._is_shadow = options.shadow
        self._failure = ""

    async def run(self) -> None:
        """Runs until cancelled. A failure here never stops scheduling."""
        while True:
            written = not self._is_shadow and self._may_write() and await self.publish()
            await asyncio.sleep(REPUBLISH_SECONDS if written else RETRY_SECONDS)

    async def publish(self) -> bool:
        """True if it was written. The same error is logged once, not at every attempt."""
        try:
            await self._client.send(self._request, self._may_write)
        except NotSent:
            return False
        except (ApiError, ServerUnavailable) as error:
            if str(error) != self._failure:
                log.warning(
                    "ConfigMap %s was not written; why, plan and check can't find this configuration: %s",
                    self._key,
                    error,
                )
            self._failure = str(error)
            return False
        self._failure = ""
        return True


def config_map_request(key: str, settings: Settings) -> Request:
    namespace, _, name = key.partition("/")
    text = yaml.dump(settings_document(settings), Dumper=yaml.CSafeDumper, sort_keys=False)
    body: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace, "labels": {PUBLISHED_LABEL: "configuration"}},
        "data": {CONFIG_MAP_KEY: text},
    }
    return apply_object(CONFIG_MAPS, key, body)
