"""The LocalQueue named `default`: owners that name no queue are in it, as Kueue's webhooks would have it.

`planner` applies it to objects of a dump, `scheduler.cache` to what its informers show. Kueue writes the label when an
object is created; so an object that is older than the queue stays outside.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

import msgspec

from windlass.model.kueue.queue_wire import LocalQueueObject
from windlass.model.meta import ObjectMeta
from windlass.model.names.kueue import QUEUE_NAME_LABEL
from windlass.model.owners import OwnerObject
from windlass.model.owners.kinds import OWNER_KINDS
from windlass.model.owners.volcano import VolcanoJobObject
from windlass.model.queue_names import named_queue
from windlass.model.times import parse_timestamp

DEFAULT_QUEUE = "default"
_NOT_KUEUES = frozenset(("CronJob", "ReplicaSet", "ReplicationController", "TrainingRuntime", "ClusterTrainingRuntime"))
_KINDS = frozenset(OWNER_KINDS) - _NOT_KUEUES
"""Kinds whose objects Kueue puts into the default queue; pods on their own are not among them."""
_Object = TypeVar("_Object")


def is_default_queue(obj: object) -> bool:
    return isinstance(obj, LocalQueueObject) and obj.metadata.name == DEFAULT_QUEUE


def with_default_queues(objects: Iterable[object]) -> list[object]:
    """The same objects; owners that name no queue have the label of the default queue of their namespace."""
    objects = list(objects)
    queues = {
        _namespace(obj.metadata): obj for obj in objects if isinstance(obj, LocalQueueObject) and is_default_queue(obj)
    }
    return [with_default_queue(obj, queues) for obj in objects] if queues else objects


def with_default_queue(obj: _Object, queues: Mapping[str, LocalQueueObject]) -> _Object:
    """`queues`: the default queues, by namespace."""
    if not isinstance(obj, OwnerObject) or obj.KIND not in _KINDS or isinstance(obj, VolcanoJobObject):
        return obj
    metadata = obj.metadata
    queue = queues.get(_namespace(metadata))
    if queue is None or named_queue(metadata.labels, metadata.annotations) or _is_controlled(metadata):
        return obj
    if metadata.creation_timestamp and _created(metadata) < _created(queue.metadata):
        return obj
    labels = {**metadata.labels, QUEUE_NAME_LABEL: DEFAULT_QUEUE}
    return msgspec.structs.replace(obj, metadata=msgspec.structs.replace(metadata, labels=labels))


def _is_controlled(metadata: ObjectMeta) -> bool:
    """By an owner that is in a queue itself, or could be: it is counted there, or not at all."""
    return any(reference.controller and reference.kind in _KINDS for reference in metadata.owner_references)


def _namespace(metadata: ObjectMeta) -> str:
    return metadata.namespace or "default"


def _created(metadata: ObjectMeta) -> int:
    return parse_timestamp(metadata.creation_timestamp) if metadata.creation_timestamp else 0
