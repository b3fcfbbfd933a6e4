"""Before a change drains a node: would the work there start elsewhere? `drain.room` says how much that counts.

Called by `decide.change_waves`. The answer comes from the engine, by `operator.room_readings`, and is about one node
at a time; nodes without work need none.
"""

from __future__ import annotations

from collections.abc import Sequence

from windlass.operator.decide.change_run import ChangeRun
from windlass.operator.decide.components import KEEPS_PODS
from windlass.operator.decide.drain import gang_members
from windlass.operator.decide.pool import Pool
from windlass.operator.kinds.reasons import Reason
from windlass.operator.observed import RoomQuestion, RoomReading
from windlass.operator.pods import PodView

FRESH_SECONDS = 120
MAX_ASKED = 4
"""So many nodes are compared: each costs a decision of the engine."""
Obstacle = tuple[Reason, str]


def by_room(run: ChangeRun, names: Sequence[str], count: int) -> tuple[list[str], Obstacle | None]:
    """The nodes to take, in order, and what stands in the way of others."""
    pool, rule = run.pool, run.change.spec.drain.room
    rooms = pool.observed.rooms
    with_work = [name for name in names if pool.holders(name)]
    empty = [name for name in names if name not in with_work]
    is_asked = rooms is not None and rule != "Ignore" and run.status.component not in KEEPS_PODS
    if rooms is None or not is_asked or count <= len(empty) or not with_work:
        return [*empty, *with_work], None
    if rule == "Require" and any(not record.result and pool.holders(name) for name, record in run.records.items()):
        return empty, (Reason.AskingForRoom, "the work of a node that is being drained has to find its place first")
    asked = with_work[: max(MAX_ASKED, count - len(empty))]
    unknown = [name for name in asked if not _is_fresh(rooms.get(name), pool.now)]
    if unknown:
        pool.rooms_due += [_question(pool, name) for name in unknown]
        pool.wake(pool.now + FRESH_SECONDS)
        return empty, (Reason.AskingForRoom, f"where would the work of {', '.join(unknown)} go")
    if rule == "Require":
        found = [name for name in asked if not rooms[name].without and not rooms[name].error]
        pool.wake(pool.now + FRESH_SECONDS)
        # One at a time: two nodes may have found the same room.
        return [*empty, *found[:1]], None if found else (Reason.NoRoom, _why(asked[0], rooms[asked[0]]))
    return [*empty, *sorted(asked, key=lambda name: bool(rooms[name].without)), *with_work[len(asked) :]], None


def _is_fresh(reading: RoomReading | None, now: int) -> bool:
    return reading is not None and now - reading.at < FRESH_SECONDS


def _why(name: str, reading: RoomReading) -> str:
    if reading.error:
        return f"it is not known where the work of {name} would go: {reading.error}"
    more = f" and {len(reading.without) - 1} more" if len(reading.without) > 1 else ""
    return f"{reading.without[0]}{more} of {name} would not start elsewhere"


def _question(pool: Pool, name: str) -> RoomQuestion:
    """Everything that would be stopped for this node, whole gangs and Workloads."""
    works, pods, of_works = set[str](), set[str](), set[str]()
    for pod in pool.holders(name):
        work = pool.work_of(pod)
        if work is not None and work.is_admitted:
            works.add(work.key)
            of_works |= {other.key for other in _all_pods(pool) if pool.work_of(other) == work}
        else:
            pods |= {member.key for member in gang_members(pool, pod.gang)} if pod.gang else {pod.key}
    return RoomQuestion(name, tuple(sorted(works)), tuple(sorted(of_works)), tuple(sorted(pods)))


def _all_pods(pool: Pool) -> list[PodView]:
    return [pod for pods in pool.observed.pods.values() for pod in pods]
