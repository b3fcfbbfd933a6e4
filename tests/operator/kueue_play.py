"""Plays a queue that admits: it stops the pods of a deactivated Workload, and starts them again when it is active."""

from __future__ import annotations

from functools import partial

import msgspec
from tests.operator.world import World

from windlass.operator.pods import PodView
from windlass.operator.queued_work import OwnerLink, QueuedWork, QueuedWorks, queued_works
from windlass.operator.writes import ResumeWorkload, StopWorkload

STOP_SECONDS, START_SECONDS = 20, 10
JOB = "uid-job"


class Kueue:
    """`world.queue`; it can be down, and then does nothing."""

    def __init__(self, world: World) -> None:
        self.world, self.is_down = world, False
        self.works: dict[str, QueuedWork] = {}
        self.links: dict[tuple[str, str], OwnerLink] = {}
        self.stops: list[str] = []
        self._waiting: dict[str, list[PodView]] = {}
        world.queue = self

    def admit(self, key: str, *owners: str, **fields: object) -> None:
        self.works[key] = QueuedWork(
            key=key,
            uid=f"uid-{key}",
            api_version="kueue.x-k8s.io/v1beta2",
            owners=frozenset(owners),
            is_admitted=True,
            **fields,  # type: ignore[arg-type]
        )

    def seen(self) -> QueuedWorks:
        return queued_works(self.works, self.links)

    def put(self, key: str, **fields: object) -> None:
        self.works[key] = msgspec.structs.replace(self.works[key], **fields)

    def pods_of(self, key: str) -> list[PodView]:
        seen = self.seen()
        found = [(pod, seen.find(pod.workload, (pod.uid, pod.owner_uid))) for pod in self.world.pods.values()]
        return [pod for pod, work in found if work is not None and work.key == key]

    def stop(self, write: StopWorkload) -> bool:
        if not self.world.protected.isdisjoint(key for key, _ in write.pods):
            return False
        self.stops.append(write.key)
        self.put(write.key, is_active=False, stopped_for=write.reason)
        self.world.later(STOP_SECONDS, partial(self._obey, write.key))
        return True

    def resume(self, write: ResumeWorkload) -> bool:
        self.put(write.key, is_active=True, stopped_for="")
        self.world.later(START_SECONDS, partial(self._obey, write.key))
        return True

    def _obey(self, key: str) -> None:
        work = self.works[key]
        if self.is_down:
            return
        if not work.is_active and work.is_admitted:
            pods = self._waiting[key] = self.pods_of(key)
            for pod in pods:
                del self.world.pods[pod.key]
            self.put(key, is_admitted=False)
        elif work.is_active and not work.is_admitted:
            self.put(key, is_admitted=True)
            for pod in self._waiting.pop(key, []):
                self.world.place(pod)
