"""Admissions of this decision are withdrawn for an unqueued workload of higher priority, as few as it takes."""

from __future__ import annotations

from typing import Any

from windlass.model.pod import Pod, PodSpec
from windlass.model.workload import PodSet, Workload
from windlass.placement.withdrawn_admissions import withdraw_admissions
from windlass.placement.workload_pieces import PIECE_SEPARATOR
from windlass.queueing.outcome import Admitted, Held
from windlass.queueing.placement_interface import PlacementResult, PodSetChoice

CHOICE = (PodSetChoice("main", 1, {}),)


class Placer:
    """GPUs in one number: every workload takes its `sizes`."""

    def __init__(self, free: int, sizes: dict[str, int]) -> None:
        self.free, self.sizes = free, sizes
        self.steps: list[str] = []
        self.could = True

    def could_place(self, workload: Workload, choices: Any, removed: list[Workload]) -> bool:
        self.asked = [found.key for found in removed]
        return self.could

    def checkpoint(self) -> int:
        return self.free

    def rollback(self, to: int) -> None:
        self.free = to
        self.steps.append("rollback")

    def remove(self, workload: Workload) -> None:
        self.free += self.sizes[workload.key]
        self.steps.append(f"-{workload.key}")

    def place(self, workload: Workload, choices: Any) -> PlacementResult:
        assert choices == CHOICE
        size = self.sizes[workload.key]
        if size > self.free:
            return PlacementResult(False, message="no room.", code="GPU_FULL")
        self.free -= size
        self.steps.append(f"+{workload.key}")
        return PlacementResult(True, ({f"for-{workload.key}": 1},), after=("d/victim",))


def piece(key: str, priority: int = 0, pod_priority: int = 0, **fields: Any) -> Workload:
    template = Pod(spec=PodSpec(priority=pod_priority))
    return Workload(key, "Job", (PodSet("main", 1, template),), priority=priority, **fields)


def admitted(key: str, cycle: int = 0, queue: str = "q", after: tuple[str, ...] = ()) -> Admitted:
    return Admitted(key, queue, CHOICE, ({"old": 1},), after, cycle)


def withdraw(placer: Placer, outcomes: list, pieces: list[Workload], gang: Workload | None = None):
    wanted = gang or piece("d/gang", 10)
    by_key = {found.key: found for found in pieces}
    return withdraw_admissions(wanted, CHOICE, outcomes, by_key, placer)  # type: ignore[arg-type]


def test_the_lowest_and_latest_go_first_and_only_as_many_as_needed() -> None:
    sizes = {"d/gang": 3, "d/a": 2, "d/b": 2, "d/c": 2, "d/d": 2}
    placer = Placer(0, sizes)
    outcomes = [admitted("d/a", 1), admitted("d/b", 2), admitted("d/c", 2), admitted("d/d", 1)]
    pieces = [piece("d/a"), piece("d/b", 1), piece("d/c"), piece("d/d", 1)]
    result = withdraw(placer, outcomes, pieces)
    assert placer.asked == ["d/c", "d/a", "d/b", "d/d"]
    assert placer.steps == ["-d/c", "-d/a", "+d/gang"]
    assert result.result.nodes == ({"for-d/gang": 1},)
    why = "no room; d/gang of higher priority starts in its place"
    assert result.outcomes == [
        Held("d/a", "GPU_FULL", why, 1),
        outcomes[1],
        Held("d/c", "GPU_FULL", why, 2),
        outcomes[3],
    ]


def test_members_above_a_minimum_go_before_their_gang_and_names_decide_last() -> None:
    above = f"d/z{PIECE_SEPARATOR}1"
    names = ["d/b", "d/a", above]
    placer = Placer(0, {"d/gang": 3, **dict.fromkeys(names, 1)})
    assert withdraw(placer, [admitted(name) for name in names], [piece(name) for name in names])
    assert placer.asked == [above, "d/a", "d/b"]


def test_what_still_fits_starts_all_the_same() -> None:
    """`a` alone makes too little room; with `b` withdrawn too, `a` fits beside the gang."""
    placer = Placer(0, {"d/gang": 3, "d/a": 1, "d/b": 3})
    outcomes = [Held("d/x", "C", "waits"), admitted("d/b"), admitted("d/a", 4)]
    result = withdraw(placer, outcomes, [piece("d/a"), piece("d/b", 1)])
    assert placer.steps == ["-d/a", "-d/b", "+d/gang", "+d/a"]
    held, again = result.outcomes[1:]
    assert result.outcomes[0] == outcomes[0]
    assert (held.workload, held.code) == ("d/b", "GPU_FULL")
    assert again == Admitted("d/a", "q", CHOICE, ({"for-d/a": 1},), ("d/victim",), 4)


def test_nothing_changes_where_it_does_not_help() -> None:
    placer = Placer(1, {"d/gang": 9, "d/a": 2})
    assert withdraw(placer, [admitted("d/a")], [piece("d/a")]) is None
    assert placer.steps == ["-d/a", "rollback"]
    assert placer.free == 1
    placer = Placer(1, {"d/gang": 1, "d/a": 2})
    placer.could = False
    assert withdraw(placer, [admitted("d/a")], [piece("d/a")]) is None
    assert withdraw(Placer(9, {"d/gang": 1}), [Held("d/a", "", "")], []) is None
    assert placer.steps == []


def test_who_keeps_its_admission() -> None:
    """Of at least the same priority, by itself or by its pods; unqueued; with victims of its own; nominated."""
    keeps = [
        (admitted("d/a"), piece("d/a", 10)),
        (admitted("d/b"), piece("d/b", 0, pod_priority=10)),
        (admitted("d/c", queue=""), piece("d/c")),
        (admitted("d/d", after=("d/v",)), piece("d/d")),
        (admitted("d/e"), piece("d/e", nominated=True)),
    ]
    for outcome, found in keeps:
        assert withdraw(Placer(9, {"d/gang": 1, found.key: 1}), [outcome], [found]) is None
    nominated = piece("d/gang", 10, nominated=True)
    for (outcome, found), gives_way in zip(keeps, (True, True, False, False, False), strict=True):
        result = withdraw(Placer(0, {"d/gang": 1, found.key: 1}), [outcome], [found], nominated)
        assert (result is not None) == gives_way, "to one of its own priority, if others were evicted for that"
    lower = piece("d/f", 9, pod_priority=9)
    assert withdraw(Placer(9, {"d/gang": 1, "d/f": 1}), [admitted("d/f")], [lower])
