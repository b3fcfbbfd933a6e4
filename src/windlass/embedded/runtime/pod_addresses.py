"""Pod IP addresses for `kubelet`: one network per node, as a network plugin assigns them. Nothing listens there."""

from __future__ import annotations

_HOSTS = range(2, 255)


class PodAddresses:
    def __init__(self) -> None:
        self._networks: dict[str, int] = {}
        self._addresses: dict[str, dict[str, str]] = {}

    def allocate(self, node: str, pod: str, known: str = "") -> str:
        """An address for a pod, the known one if it has one; empty if the network is full."""
        addresses = self._addresses.setdefault(node, {})
        if pod not in addresses:
            addresses[pod] = known or self._next_free(node)
        return addresses[pod]

    def get(self, node: str, pod: str) -> str:
        return self._addresses.get(node, {}).get(pod, "")

    def release(self, node: str, pod: str) -> None:
        self._addresses.get(node, {}).pop(pod, None)

    def _next_free(self, node: str) -> str:
        number = self._networks.setdefault(node, len(self._networks))
        prefix = f"10.{128 + (number >> 8) % 128}.{number & 255}"
        taken = set(self._addresses[node].values())
        return next((address for host in _HOSTS if (address := f"{prefix}.{host}") not in taken), "")
