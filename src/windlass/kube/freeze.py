"""The state of `windlass freeze`: a ConfigMap that every role reads before it writes.

`kube.write_gate` (the scheduler) and `node.node_api` (the node agent) read it, `cli.freeze` writes it. There is one in
the namespace of the installation. What can't be understood counts as frozen; where there is no such ConfigMap, nothing
is. Needs no HTTP library, since the node agent imports it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from windlass.kube.errors import MalformedAnswer, decode_answer
from windlass.kube.resources import CONFIG_MAPS, NAMESPACES
from windlass.model.unstructured import Unstructured

FREEZE_CONFIG_MAP = "windlass-freeze"
SCHEDULER_NAMESPACE = "windlass-system"
"""Where `install` puts the scheduler, and `up` all of Windlass."""
AGENTS_NAMESPACE = "windlass-node"
"""Where only node agents obey: they start nothing."""
HANDED_OVER = "handed over to kube-scheduler"
"""The reason that `windlass handover` gives."""
REFRESH_SECONDS, MAX_AGE_SECONDS = 2.0, 4.0
"""A write that finds the state older than the first reads it anew, and older than the second waits for the answer."""
STOP_SECONDS = 5.0
"""No role begins a write later than this after the state has been written."""
FROZEN, RUNNING = "frozen", "running"
OBEYED_ANNOTATION = "windlass.dev/obeys-freeze"
"""On the Lease of a scheduler: the ConfigMap that it reads before it writes."""
LEASE_PATHS = "/apis/coordination.k8s.io/"
"""Leases are written while everything else is frozen: the leader stays the leader, and no replica has to start."""


class FreezeState(msgspec.Struct, frozen=True):
    """The data of the ConfigMap."""

    state: str = RUNNING
    since: str = ""
    by: str = ""
    reason: str = ""

    @property
    def is_frozen(self) -> bool:
        return self.state != RUNNING

    def __str__(self) -> str:
        if self.state not in (FROZEN, RUNNING):
            what = self.reason or f"data.state is '{self.state}', which is neither {FROZEN} nor {RUNNING}"
            return f"frozen, because ConfigMap {FREEZE_CONFIG_MAP} can't be read: {what}"
        since, by = (f" since {self.since}" if self.since else ""), (f" by {self.by}" if self.by else "")
        return f"{self.state}{since}{by}" + (f": {self.reason}" if self.reason else "")


class _ConfigMap(msgspec.Struct, frozen=True):
    data: dict[str, str] | None = None


def freeze_path(namespace: str) -> str:
    return CONFIG_MAPS.path(f"{namespace}/{FREEZE_CONFIG_MAP}")


def is_stopped_by_freeze(method: str, path: str) -> bool:
    """Whether a request is a write, other than to a Lease or of the namespace that it needs."""
    return method not in ("GET", "HEAD") and not path.startswith(LEASE_PATHS) and path != NAMESPACES.collection


def decode_freeze(body: bytes) -> FreezeState:
    """The state that a ConfigMap has."""
    try:
        data = decode_answer(body, _ConfigMap, FREEZE_CONFIG_MAP).data or {}
    except MalformedAnswer as error:
        return FreezeState("unreadable", reason=str(error))
    return FreezeState(data.get("state", ""), data.get("since", ""), data.get("by", ""), data.get("reason", ""))


def frozen_in(config_maps: Iterable[Mapping[str, Any]]) -> tuple[str, FreezeState | None]:
    """The namespace in which a scheduler is frozen, and its state; None if none is."""
    for tree in config_maps:
        metadata = tree.get("metadata")
        name, namespace = (
            (metadata.get(key, "") for key in ("name", "namespace")) if isinstance(metadata, dict) else 2 * ("",)
        )
        if name == FREEZE_CONFIG_MAP and namespace != AGENTS_NAMESPACE:
            data = tree.get("data")
            texts = {key: str(text) for key, text in data.items()} if isinstance(data, dict) else {}
            state = FreezeState(*(texts.get(key, "") for key in ("state", "since", "by", "reason")))
            if state.is_frozen:
                return str(namespace), state
    return "", None


def freeze_object(namespace: str, state: FreezeState) -> Unstructured:
    metadata = {"name": FREEZE_CONFIG_MAP, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": msgspec.to_builtins(state)}
