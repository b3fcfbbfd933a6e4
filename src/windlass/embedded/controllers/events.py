"""Events: one object per subject, reason and message, with a count, deleted after an hour.

Controllers and node runtimes write them through an `EventRecorder`; `EventTtlController` deletes old ones.
"""

from __future__ import annotations

from collections import OrderedDict

from windlass.embedded.api.errors import ApiError
from windlass.embedded.api.timestamps import format_time, parse_time
from windlass.embedded.controllers.client import Client
from windlass.embedded.controllers.objects import created_at, key_of, split_key
from windlass.model.unstructured import Unstructured

MAX_KNOWN_EVENTS = 4096
EVENT_TTL_SECONDS = 3600.0
MAX_MESSAGE_LENGTH = 1024
SUBJECT_BURST, SUBJECT_RATE = 500, 1.0


class EventRateLimiter:
    """Token bucket for normal events: a burst, then a rate per second."""

    def __init__(self, burst: float = 1000.0, rate: float = 50.0) -> None:
        self._tokens, self._burst, self._rate = burst, burst, rate
        self._refilled_at = 0.0

    def try_accept(self, now: float) -> bool:
        self._tokens = min(self._burst, self._tokens + max(0.0, now - self._refilled_at) * self._rate)
        self._refilled_at = max(self._refilled_at, now)
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True


class EventRecorder:
    """Writes events of one component; `host` is the kubelet's node.

    With a rate limiter, normal events beyond it are dropped, as a kubelet drops them; warnings never are. Those
    of one subject are limited anyway: a controller that creates ten thousand pods doesn't write as many events.
    """

    def __init__(self, client: Client, component: str, rate_limiter: EventRateLimiter | None = None) -> None:
        self._client, self._component, self._rate_limiter = client, component, rate_limiter
        self._recent: OrderedDict[tuple[str, ...], tuple[str, str]] = OrderedDict()
        self._subjects: OrderedDict[str, EventRateLimiter] = OrderedDict()
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
        """Errors are ignored: nothing depends on an event."""
        if type == "Normal" and self._rate_limiter is not None and not self._rate_limiter.try_accept(now):
            return
        if type == "Normal" and not self._limiter_of(regarding).try_accept(now):
            return
        message = message[:MAX_MESSAGE_LENGTH]
        target = _reference(regarding, field)
        key = (target.get("uid", ""), target["name"], field, type, reason, message, host)
        known = self._recent.get(key)
        try:
            if known is None or not self._increment_count(known, now):
                self._recent[key] = self._create(target, reason, message, now, type, host)
        except ApiError:
            return
        self._recent.move_to_end(key)
        if len(self._recent) > MAX_KNOWN_EVENTS:
            self._recent.popitem(last=False)

    def _limiter_of(self, regarding: Unstructured) -> EventRateLimiter:
        uid = regarding["metadata"].get("uid", "")
        limiter = self._subjects.setdefault(uid, EventRateLimiter(SUBJECT_BURST, SUBJECT_RATE))
        self._subjects.move_to_end(uid)
        if len(self._subjects) > MAX_KNOWN_EVENTS:
            self._subjects.popitem(last=False)
        return limiter

    def _increment_count(self, known: tuple[str, str], now: float) -> bool:
        namespace, name = known
        try:
            event = self._client.get("events", namespace, name)
            merge = {"count": int(event.get("count") or 1) + 1, "lastTimestamp": format_time(now)}
            self._client.patch("events", namespace, name, merge)
        except ApiError:
            return False
        return True

    def _create(
        self, target: Unstructured, reason: str, message: str, now: float, type: str, host: str
    ) -> tuple[str, str]:
        namespace = target.get("namespace") or "default"
        # Names sort by time, as Kubernetes' do: `kubectl describe` orders events of one second by name.
        self._serial += 1
        name = f"{target['name']}.{int(now * 1_000_000):x}{self._serial & 0xFFFF:04x}"
        timestamp = format_time(now)
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
            "firstTimestamp": timestamp,
            "lastTimestamp": timestamp,
            "eventTime": None,
            "reportingComponent": self._component,
            "reportingInstance": host,
        }
        self._client.create("events", namespace, event)
        return namespace, name


def _reference(obj: Unstructured, field: str) -> Unstructured:
    metadata = obj["metadata"]
    reference = {
        "apiVersion": obj["apiVersion"],
        "kind": obj["kind"],
        "name": metadata["name"],
        "namespace": metadata.get("namespace", ""),
        # `kubectl describe node` finds a node's events by its name, as the kubelet writes it.
        "uid": metadata.get("uid", ""),
        "resourceVersion": metadata.get("resourceVersion", ""),
        "fieldPath": field,
    }
    return {name: value for name, value in reference.items() if value}


class EventTtlController:
    """Deletes an event an hour after it was last seen."""

    name = "events-ttl"
    resources = ("events",)

    def __init__(self, client: Client, lifetime: float = EVENT_TTL_SECONDS) -> None:
        self._client, self._lifetime = client, lifetime

    def keys_for(self, resource: str, event_type: str, new: Unstructured, old: Unstructured | None) -> tuple[str, ...]:
        return (key_of(new),) if event_type == "ADDED" else ()

    def sync(self, key: str, now: float) -> float | None:
        namespace, name = split_key(key)
        try:
            event = self._client.get("events", namespace, name)
        except ApiError:
            return None
        expires = _last_seen(event) + self._lifetime
        if now < expires:
            return expires
        self._client.delete("events", namespace, name)
        return None


def _last_seen(event: Unstructured) -> float:
    series = event.get("series") or {}
    seen = (event.get("lastTimestamp"), series.get("lastObservedTime"), event.get("eventTime"))
    return max((parse_time(timestamp) for timestamp in seen), default=0.0) or created_at(event)
