"""Which GPU or MIG device is behind a device of a ResourceClaim: the ResourceSlices of NVIDIA's DRA driver.

`pod_resources` asks, for pods that hold devices by claims: the kubelet's answer has a pool and a name, and no UUID. The
API server is asked only then, and again only for a device that is not known yet.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from windlass.model.errors import WindlassError

if TYPE_CHECKING:
    from windlass.node.node_api import NodeApi

DRIVER = "gpu.nvidia.com"
DeviceUuid = Callable[[str, str], str]
"""(pool, device) → UUID; empty if it is not known."""
RETRY_SECONDS = 10.0


class ResourceSlices:
    def __init__(self, api: NodeApi, clock: Callable[[], float] = time.monotonic) -> None:
        self._api, self._clock = api, clock
        self._uuids: dict[tuple[str, str], str] = {}
        self._ask_at = 0.0

    def uuid_of(self, pool: str, device: str) -> str:
        if (pool, device) not in self._uuids and self._clock() >= self._ask_at:
            self._ask_at = self._clock() + RETRY_SECONDS
            try:
                self._uuids = device_uuids(self._api.list_resource_slices(DRIVER))
            except WindlassError:
                return ""
        return self._uuids.get((pool, device), "")


def device_uuids(slices: Iterable[Mapping[str, Any]]) -> dict[tuple[str, str], str]:
    """UUID by pool and device. A MIG device that is made on demand has none; its GPU stands for it, as in
    dcgm-exporter."""
    found = {}
    for item in slices:
        spec = item.get("spec", {})
        pool = spec.get("pool", {}).get("name", "")
        for device in spec.get("devices") or ():
            # Up to v1beta1 attributes are one level deeper.
            attributes = device.get("attributes") or (device.get("basic") or {}).get("attributes") or {}
            uuid = _text(attributes, "uuid") or _text(attributes, "parentUUID")
            if uuid:
                found[pool, device.get("name", "")] = uuid
    return found


def _text(attributes: Mapping[str, Any], name: str) -> str:
    return str((attributes.get(name) or {}).get("string", ""))
