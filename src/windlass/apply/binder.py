"""Sends binds, many at a time, and reports a definite outcome of each: bound, refused, or gone.

`apply.executor` assumes a bind and hands it over. If the server gives no answer, the binder reads the pod until it
knows what happened: a bind without a known outcome stays assumed, since its resources may be in use.
"""

from __future__ import annotations

import asyncio
import enum
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import msgspec

from windlass.kube.backoff import Backoff
from windlass.kube.client import KubeClient
from windlass.kube.errors import ApiError, NotSent, ServerUnavailable
from windlass.kube.request import Request
from windlass.kube.resources import PODS
from windlass.kube.write_requests import bind_pod
from windlass.model.decision import Bind, device_indices
from windlass.model.names.windlass import DEVICES_ANNOTATION

log = logging.getLogger(__name__)

MAX_IN_FLIGHT = 96


class BindResult(enum.Enum):
    BOUND = "bound"
    REFUSED = "refused"
    """The pod is still pending and can be decided on again."""
    GONE = "gone"
    """The pod was deleted or bound by another scheduler; the watch will show which."""


class BindOutcome(msgspec.Struct, frozen=True):
    bind: Bind
    uid: str
    result: BindResult
    error: str = ""
    refusal: str = ""
    """The server's message if it refused this node, or why the pod's volumes can't be bound there."""


class _FoundMeta(msgspec.Struct, frozen=True):
    uid: str


class _FoundSpec(msgspec.Struct, frozen=True, rename="camel"):
    node_name: str = ""


class _FoundPod(msgspec.Struct, frozen=True):
    metadata: _FoundMeta
    spec: _FoundSpec


class _FoundPods(msgspec.Struct, frozen=True):
    items: tuple[_FoundPod, ...] | None


class Binder:
    def __init__(
        self, client: KubeClient, may_write: Callable[[], bool], on_outcome: Callable[[BindOutcome], None]
    ) -> None:
        self._client, self._may_write, self._on_outcome = client, may_write, on_outcome
        self._backlog: deque[tuple[Bind, str]] = deque()
        """Binds and uids to send when fewer than `MAX_IN_FLIGHT` are under way."""
        self._sending = 0
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def in_flight(self) -> int:
        return len(self._tasks) + len(self._backlog)

    @property
    def has_backlog(self) -> bool:
        return bool(self._backlog)

    def bind(self, bind: Bind, uid: str, pre_bind: Callable[[], Awaitable[None]] | None = None) -> None:
        """Starts a bind; awaits `pre_bind` first, which binds volumes and takes no slot."""
        if pre_bind is not None:
            self._start_task(self._run_pre_bind(bind, uid, pre_bind))
        elif self._sending < MAX_IN_FLIGHT:
            self._sending += 1
            self._start_task(self._send_until_empty(bind, uid))
        else:
            self._backlog.append((bind, uid))

    def _start_task(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def drain(self) -> None:
        """Waits until every bind has an outcome."""
        while self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _run_pre_bind(self, bind: Bind, uid: str, pre_bind: Callable[[], Awaitable[None]]) -> None:
        try:
            await pre_bind()
        except (ApiError, ServerUnavailable, NotSent) as failure:
            self._on_outcome(_failure_outcome(bind, uid, failure))
        else:
            self.bind(bind, uid)

    async def _send_until_empty(self, bind: Bind, uid: str) -> None:
        """Sends this bind, then those of the backlog one after the other: the task keeps its slot."""
        try:
            while True:
                await self._bind_and_report(bind, uid)
                if not self._backlog:
                    return
                bind, uid = self._backlog.popleft()
        finally:
            self._sending -= 1

    async def _bind_and_report(self, bind: Bind, uid: str) -> None:
        outcome = BindOutcome(bind, uid, BindResult.REFUSED)
        try:
            outcome = BindOutcome(bind, uid, await self._send_bind(bind, uid))
        except (ApiError, ServerUnavailable, NotSent) as failure:
            outcome = _failure_outcome(bind, uid, failure)
        finally:
            self._on_outcome(outcome)

    async def _send_bind(self, bind: Bind, uid: str) -> BindResult:
        request = bind_pod(bind.pod, uid, bind.node, device_annotations(bind))
        try:
            await self._client.send(request, self._may_write)
        except ServerUnavailable as error:
            log.warning("bind of %s to %s: no answer (%s)", bind.pod, bind.node, error)
            return await self._look_up_outcome(bind, uid)
        except ApiError as error:
            if error.code < 500:
                raise
            return await self._look_up_outcome(bind, uid)
        return BindResult.BOUND

    async def _look_up_outcome(self, bind: Bind, uid: str) -> BindResult:
        """Whether a bind without an answer took effect. By list, since RBAC grants that already."""
        namespace, _, name = bind.pod.partition("/")
        selector = (("fieldSelector", f"metadata.name={name}"),)
        request = Request("GET", PODS.namespace_collection(namespace), selector)
        backoff = Backoff(most=5.0)
        while True:
            try:
                found = await self._client.read(request, _FoundPods)
            except (ApiError, ServerUnavailable):
                await asyncio.sleep(backoff.next())
                continue
            pods = [pod for pod in found.items or () if pod.metadata.uid == uid]
            if not pods:
                return BindResult.GONE
            node = pods[0].spec.node_name
            if not node:
                return BindResult.REFUSED
            return BindResult.BOUND if node == bind.node else BindResult.GONE


def _failure_outcome(bind: Bind, uid: str, failure: Exception) -> BindOutcome:
    if not isinstance(failure, ApiError):
        return BindOutcome(bind, uid, BindResult.REFUSED, str(failure))
    if failure.code in (404, 409):
        return BindOutcome(bind, uid, BindResult.GONE, str(failure))
    refusal = failure.status.message or str(failure)
    return BindOutcome(bind, uid, BindResult.REFUSED, str(failure), refusal=refusal)


def device_annotations(bind: Bind) -> dict[str, str]:
    """The assigned devices, for the node agent and for later decisions."""
    if not bind.devices:
        return {}
    return {DEVICES_ANNOTATION: device_indices(bind.devices)}
