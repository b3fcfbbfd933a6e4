"""Objects without a cluster, for tests of the page: a source that tells its subscribers of every change."""

from __future__ import annotations

import json
from collections.abc import Callable

import msgspec

from windlass.model.fleet import Fleet, expand_fleet
from windlass.model.unstructured import Unstructured

Tell = Callable[[str, Unstructured, Unstructured | None], None]

FLEET = {
    "apiVersion": "windlass.dev/v1",
    "kind": "Fleet",
    "metadata": {"name": "page"},
    "spec": {
        "pools": [
            {
                "name": "h100",
                "count": 8,
                "gpus": [{"model": "H100", "count": 8}],
                "rack": "rack",
                "nodesPerRack": 4,
                "zone": "zone-a",
                "taints": [{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}],
            },
            {
                "name": "a100",
                "count": 1,
                "gpus": [
                    {
                        "model": "A100-80",
                        "count": 4,
                        "mig": ["3g.40gb", "2g.20gb", "1g.10gb", "1g.10gb"],
                    }
                ],
                "zone": "zone-a",
            },
            {
                "name": "t4",
                "count": 1,
                "gpus": [{"model": "T4", "count": 4}],
                "sharing": {"strategy": "time-slicing", "replicas": 4},
                "zone": "zone-b",
            },
            {"name": "cpu", "count": 2, "zone": "zone-b"},
        ]
    },
}


class Feed:
    """A `Source` that tests write to."""

    def __init__(self) -> None:
        self._objects: dict[str, dict[str, Unstructured]] = {}
        self._tells: dict[str, list[Tell]] = {}

    def list(self, resource: str) -> list[Unstructured]:
        return list(self._objects.get(resource, {}).values())

    def subscribe(self, resource: str, tell: Tell) -> Callable[[], None]:
        self._tells.setdefault(resource, []).append(tell)
        return lambda: self._tells[resource].remove(tell)

    def put(self, resource: str, *objects: Unstructured) -> None:
        for obj in objects:
            key = f"{obj['metadata'].get('namespace', '')}/{obj['metadata']['name']}"
            old = self._objects.setdefault(resource, {}).get(key)
            self._objects[resource][key] = obj
            for tell in list(self._tells.get(resource, ())):
                tell("MODIFIED" if old else "ADDED", obj, old)

    def remove(self, resource: str, obj: Unstructured) -> None:
        key = f"{obj['metadata'].get('namespace', '')}/{obj['metadata']['name']}"
        old = self._objects[resource].pop(key)
        for tell in list(self._tells.get(resource, ())):
            tell("DELETED", obj, old)


def nodes(fleet: Unstructured = FLEET) -> list[Unstructured]:
    """The nodes of a Fleet as the API server has them."""
    made = expand_fleet(msgspec.convert(fleet, Fleet))
    return [{"apiVersion": "v1", "kind": "Node", **json.loads(msgspec.json.encode(node))} for node in made]


def pod(
    name: str,
    asks: dict[str, str] | None = None,
    node: str = "",
    devices: str = "",
    phase: str = "",
    waits: tuple[str, str] | None = None,
    owner: tuple[str, str] | None = None,
    **annotations: str,
) -> Unstructured:
    """`waits` is a reason and a message, `owner` a kind and a name."""
    meta: Unstructured = {
        "name": name,
        "namespace": "default",
        "uid": name,
        "creationTimestamp": "2026-01-01T10:00:00Z",
    }
    notes = {f"sandbox.windlass.dev/{key.replace('_', '-')}": value for key, value in annotations.items()}
    if devices:
        notes["windlass.dev/devices"] = devices
    meta["annotations"] = notes
    if owner:
        meta["ownerReferences"] = [{"kind": owner[0], "name": owner[1], "controller": True, "uid": owner[1]}]
    resources = {"requests": asks or {}, "limits": asks or {}}
    status: Unstructured = {"phase": phase or ("Running" if node else "Pending")}
    if node:
        status["startTime"] = "2026-01-01T10:00:00Z"
    if waits:
        condition = {"type": "PodScheduled", "status": "False", "reason": waits[0], "message": waits[1]}
        status["conditions"] = [condition]
    spec: Unstructured = {"containers": [{"name": "main", "image": "x", "resources": resources}]}
    if node:
        spec["nodeName"] = node
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec, "status": status}
