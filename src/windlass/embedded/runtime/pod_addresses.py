"""Pod addresses: a network of its own for every node, as a network plugin hands them out. Nothing listens there."""

from __future__ import annotations

_HOSTS = range(2, 255)


class PodAddresses:
    def __init__(self) -> None:
        self._networks: dict[str, int] = {}
        self._given: dict[str, dict[str, str]] = {}

    def allocate(self, node: str, pod: str, known: str = "") -> str:
        """An address for a pod; the one that it has, where it has one. Empty where the network is full."""
        given = self._given.setdefault(node, {})
        if pod not in given:
            given[pod] = known or self._free(node)
        return given[pod]

    def get(self, node: str, pod: str) -> str:
        return self._given.get(node, {}).get(pod, "")

    def release(self, node: str, pod: str) -> None:
        self._given.get(node, {}).pop(pod, None)

    def _free(self, node: str) -> str:
        number = self._networks.setdefault(node, len(self._networks))
        prefix = f"10.{128 + (number >> 8) % 128}.{number & 255}"
        taken = set(self._given[node].values())
        return next((address for host in _HOSTS if (address := f"{prefix}.{host}") not in taken), "")
