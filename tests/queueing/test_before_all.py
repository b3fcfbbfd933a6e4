"""Which single pods are placed before all gangs and queues."""

from __future__ import annotations

import msgspec

from reference.park import Desk, node, pod
from windlass.queueing.queue_sort import sorts_before_all

LATE, EARLY = "2025-01-02T00:00:00Z", "2025-01-01T00:00:00Z"
GANG_FIRST = [(-5, 1_700_000_000)]
"""A gang of priority 5 that waits since 2023."""
MIXED = [*GANG_FIRST, (0, -1)]
"""And queued work that goes down to priority 0."""


def before(*pods: object, waiting: list[tuple[int, int]] = GANG_FIRST) -> set[str]:
    snapshot = Desk(node("n"), *pods).store.snapshot()
    mask = sorts_before_all(snapshot, waiting)
    return {snapshot.pods.objects[row].metadata.name for row in snapshot.pods.pending().tolist() if mask[row]}


def nominated(name: str, **more: object) -> object:
    made = pod(name, **more)
    return msgspec.structs.replace(made, status=msgspec.structs.replace(made.status, nominated_node_name="n"))


def test_pods_of_higher_priority_come_before_gangs():
    assert before(pod("urgent", priority=6, created=LATE), pod("same", priority=5, created=EARLY)) == {"urgent"}


def test_a_nominated_pod_comes_before_what_could_take_its_room_again():
    assert before(nominated("for-it", priority=5, created=LATE), pod("other", priority=5, created=LATE)) == {"for-it"}


def test_a_nominated_pod_does_not_come_before_what_ranks_above_it():
    """As in Kubernetes, where a nomination holds a node only against pods of the same priority and below."""
    for waiting in (GANG_FIRST, MIXED):
        assert before(nominated("for-it", priority=1), pod("other", priority=1), waiting=waiting) == set()


def test_and_with_it_what_is_more_urgent_than_it_is():
    """Otherwise the nominated pod would take the room before a pod that ranks above it."""
    pods = [nominated("for-it", priority=5), pod("above", priority=6), pod("equal", priority=5), pod("below")]
    assert before(*pods, waiting=MIXED) == {"for-it", "above"}
