"""Events as users know them: one object for each reason and message about a thing, counted, gone after an hour.

Controllers and node runtimes announce through an `EventRecorder`; `EventTtlController` is the worker that removes old
ones.
"""

from __future__ import annotations

from collections import OrderedDict

from windlass.embedded.api.errors import ApiError
from windlass.embedded.controllers.client import Client
from windlass.embedded.controllers.objects import created_at, format_time, key_of, parse_time, split_key
from windlass.model.unstructured import Unstructured

MAX_KNOWN_EVENTS = 4096
EVENT_TTL_SECONDS = 3600.0
MAX_MESSAGE_LENGTH = 1024


class EventRateLimiter:
    """How many events that only tell of normal things may be written: so many at once, then so many a second."""

    def __init__(self, burst: float = 1000.0, rate: float = 50.0) -> None:
        self._left, self._burst, self._rate = burst, burst, rate
        self._at = 0.0

    def try_accept(self, now: float) -> bool:
        self._left = min(self._burst, self._left + max(0.0, now - self._at) * self._rate)
        self._at = max(self._at, now)
        if self._left < 1:
            return False
        self._left -= 1
        return True


class EventRecorder:
    """Writes events of one component; `host` is the node for a kubelet's.

    With an allowance, normal events beyond it are dropped, as a kubelet drops them; warnings never are.
    """

    def __init__(self, client: Client, component: str, rate_limiter: EventRateLimiter | None = None) -> None:
        self._door, self._component, self._allowance = client, component, rate_limiter
        self._known: OrderedDict[tuple[str, ...], tuple[str, str]] = OrderedDict()
        self._serial = 0

    def record(
        self,
        regarding: Unstructured,
        reason: str,
        message: str,
        now: float,
        *,
        type: str = "Normal",
        host: str = "",
        field: str = "",
    ) -> None:
        """An event that can't be written is lost: nothing depends on one."""
        if type == "Normal" and self._allowance is not None and not self._allowance.try_accept(now):
            return
        message = message[:MAX_MESSAGE_LENGTH]
        target = _reference(regarding, field)
        key = (target.get("uid", ""), target["name"], field, type, reason, message, host)
        known = self._known.get(key)
        try:
            if known is None or not self._count(known, now):
                self._known[key] = self._create(target, reason, message, now, type, host)
        except ApiError:
            return
        self._known.move_to_end(key)
        if len(self._known) > MAX_KNOWN_EVENTS:
            self._known.popitem(last=False)

    def _count(self, known: tuple[str, str], now: float) -> bool:
        namespace, name = known
        try:
            event = self._door.get("events", namespace, name)
            merge = {"count": int(event.get("count") or 1) + 1, "lastTimestamp": format_time(now)}
            self._door.patch("events", namespace, name, merge)
        except ApiError:
            return False
        return True

    def _create(
        self, target: Unstructured, reason: str, message: str, now: float, type: str, host: str
    ) -> tuple[str, str]:
        namespace = target.get("namespace") or "default"
        # Names in the order of time, as Kubernetes makes them: `kubectl describe` shows events of one second by name.
        self._serial += 1
        name = f"{target['name']}.{int(now * 1_000_000):x}{self._serial & 0xFFFF:04x}"
        moment = format_time(now)
        source = {"component": self._component}
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": namespace},
            "involvedObject": target,
            "reason": reason,
            "message": message,
            "type": type,
            "source": {**source, "host": host} if host else source,
            "count": 1,
            "firstTimestamp": moment,
            "lastTimestamp": moment,
            "eventTime": None,
            "reportingComponent": self._component,
            "reportingInstance": host,
        }
        self._door.create("events", namespace, event)
        return namespace, name


def _reference(thing: Unstructured, field: str) -> Unstructured:
    metadata = thing["metadata"]
    reference = {
        "apiVersion": thing["apiVersion"],
        "kind": thing["kind"],
        "name": metadata["name"],
        "namespace": metadata.get("namespace", ""),
        # Node events carry the node's name, as the kubelet writes it: `kubectl describe node` looks for that.
        "uid": metadata.get("uid", ""),
        "resourceVersion": metadata.get("resourceVersion", ""),
        "fieldPath": field,
    }
    return {name: value for name, value in reference.items() if value}


class EventTtlController:
    """A worker: an event goes an hour after it was last seen."""

    name = "events-ttl"
    resources = ("events",)

    def __init__(self, client: Client, lifetime: float = EVENT_TTL_SECONDS) -> None:
        self._door, self._lifetime = client, lifetime

    def keys_for(
        self, resource: str, event_type: str, new: Unstructured, old: Unstructured | None
    ) -> tuple[str, ...]:
        return (key_of(new),) if event_type == "ADDED" else ()

    def sync(self, key: str, now: float) -> float | None:
        namespace, name = split_key(key)
        try:
            event = self._door.get("events", namespace, name)
        except ApiError:
            return None
        ends = _last_seen(event) + self._lifetime
        if now < ends:
            return ends
        self._door.delete("events", namespace, name)
        return None


def _last_seen(event: Unstructured) -> float:
    series = event.get("series") or {}
    seen = (event.get("lastTimestamp"), series.get("lastObservedTime"), event.get("eventTime"))
    return max((parse_time(each) for each in seen), default=0.0) or created_at(event)
