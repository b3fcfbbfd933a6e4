"""Binds carried out, many at a time, each to a known end: it happened, it was refused, or the pod is gone.

The scheduler assumes a bind before it hands it over, and hears from here what became of it. Where the server gave no
answer, the pod itself is asked, for as long as it takes: a bind whose outcome is not known stays assumed.
"""

from __future__ import annotations

import asyncio
import enum
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import msgspec

from windlass.cluster.store import ASSIGNED_DEVICES
from windlass.kube.backoff import Backoff
from windlass.kube.client import KubeClient
from windlass.kube.errors import ApiError, LeaseLost, ServerUnavailable
from windlass.kube.request import Request
from windlass.kube.resources import PODS
from windlass.kube.write_requests import bind_pod
from windlass.model.decision import Bind

log = logging.getLogger(__name__)

MOST_IN_FLIGHT = 96


class BindResult(enum.Enum):
    BOUND = "bound"
    REFUSED = "refused"
    """The pod is there, waits, and can be decided on again."""
    GONE = "gone"
    """The pod is gone, or somebody else bound it; the watch says what is."""


class BindOutcome(msgspec.Struct, frozen=True):
    bind: Bind
    uid: str
    result: BindResult
    error: str = ""
    refusal: str = ""
    """The server's words where it refused this node, or why the pod's volumes can't be had there."""


class Binder:
    def __init__(
        self, client: KubeClient, may_write: Callable[[], bool], on_outcome: Callable[[BindOutcome], None]
    ) -> None:
        self._client, self._may_write, self._tell = client, may_write, on_outcome
        self._waiting: deque[tuple[Bind, str]] = deque()
        """Until fewer than the most are in flight."""
        self._sending = 0
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def in_flight(self) -> int:
        return len(self._tasks) + len(self._waiting)

    @property
    def has_backlog(self) -> bool:
        """Whether binds wait for their turn."""
        return bool(self._waiting)

    def bind(self, bind: Bind, uid: str, pre_bind: Callable[[], Awaitable[None]] | None = None) -> None:
        """Start it; `before` is awaited first (volumes that have to be there)."""
        if pre_bind is not None:
            self._begin(self._prepare(bind, uid, pre_bind))
        elif self._sending < MOST_IN_FLIGHT:
            self._sending += 1
            self._begin(self._send(bind, uid))
        else:
            self._waiting.append((bind, uid))

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def drain(self) -> None:
        """Wait until every bind has come to its end."""
        while self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _prepare(self, bind: Bind, uid: str, before: Callable[[], Awaitable[None]]) -> None:
        try:
            await before()
        except (ApiError, ServerUnavailable, LeaseLost) as failure:
            self._tell(_failed(bind, uid, failure))
        else:
            self.bind(bind, uid)

    async def _send(self, bind: Bind, uid: str) -> None:
        """This one, and then those that wait, for as long as there are any."""
        while True:
            await self._run(bind, uid)
            if not self._waiting:
                self._sending -= 1
                return
            bind, uid = self._waiting.popleft()

    async def _run(self, bind: Bind, uid: str) -> None:
        outcome = BindOutcome(bind, uid, BindResult.REFUSED)
        try:
            outcome = BindOutcome(bind, uid, await self._bind(bind, uid))
        except (ApiError, ServerUnavailable, LeaseLost) as failure:
            outcome = _failed(bind, uid, failure)
        finally:
            self._tell(outcome)

    async def _bind(self, bind: Bind, uid: str) -> BindResult:
        request = bind_pod(bind.pod, uid, bind.node, device_annotations(bind))
        try:
            await self._client.send(request, self._may_write)
        except ServerUnavailable as error:
            log.warning("bind of %s to %s: no answer (%s)", bind.pod, bind.node, error)
            return await self._ask(bind, uid)
        except ApiError as error:
            if error.code < 500:
                raise
            return await self._ask(bind, uid)
        return BindResult.BOUND

    async def _ask(self, bind: Bind, uid: str) -> BindResult:
        """Whether a bind that got no answer happened. A list of one, since listing pods is allowed anyway."""
        namespace, _, name = bind.pod.partition("/")
        question = Request(
            "GET", PODS.namespace_collection(namespace), (("fieldSelector", f"metadata.name={name}"),)
        )
        backoff = Backoff(most=5.0)
        while True:
            try:
                found: Any = msgspec.json.decode(await self._client.send(question))
            except (ApiError, ServerUnavailable):
                await asyncio.sleep(backoff.next())
                continue
            pods = [pod for pod in found["items"] or () if pod["metadata"]["uid"] == uid]
            if not pods:
                return BindResult.GONE
            node = pods[0]["spec"].get("nodeName", "")
            if not node:
                return BindResult.REFUSED
            return BindResult.BOUND if node == bind.node else BindResult.GONE


def _failed(bind: Bind, uid: str, failure: Exception) -> BindOutcome:
    if not isinstance(failure, ApiError):
        return BindOutcome(bind, uid, BindResult.REFUSED, str(failure))
    if failure.code in (404, 409):
        return BindOutcome(bind, uid, BindResult.GONE, str(failure))
    said = failure.status.message or str(failure)
    return BindOutcome(bind, uid, BindResult.REFUSED, str(failure), refusal=said)


def device_annotations(bind: Bind) -> dict[str, str]:
    """The engine's wish for devices, for the node agent and for whoever decides next."""
    if not bind.devices:
        return {}
    return {ASSIGNED_DEVICES: ",".join(str(one.index) for one in bind.devices)}
