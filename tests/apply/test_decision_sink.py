"""The order of a plan's decisions, as any sink is handed them."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from windlass.apply.decision_sink import execute_plan, reserved_nodes
from windlass.model.decision import Admit, Bind, Evict, Hold, Reserve, Resize
from windlass.model.plan import Plan
from windlass.model.verdict import Verdict

HIGH = Admit("default/high", "PodGroup", "", (), after=("default/low",))
OTHER = Admit("default/other", "PodGroup", "", ())
LOW_GOES = Evict("default/low", ("default/low-0",), "default/high", "Priority")
HELD = Hold("default/late", Verdict(code="GPU_FULL"))
KEPT = Reserve("default/late", "", 100, None, {"n-1": 1})


def gang(name: str, *after: str) -> list[Bind]:
    return [Bind(f"default/{name}-{index}", f"n-{index}", after=after) for index in range(2)]


class Told:
    """Writes down what it is handed. Who is evicted takes its time, unless it is `quick`."""

    def __init__(self, *, quick: bool = False) -> None:
        self.said: list[tuple[str, list[str]]] = []
        self._quick = quick
        self._leaving: set[str] = set()

    def evict(self, evicts: Sequence[Evict]) -> None:
        if not self._quick:
            self._leaving = {key for evict in evicts for key in (evict.workload, *evict.pods)}
        self.said.append(("evict", [evict.workload for evict in evicts]))

    def is_terminating(self, key: str) -> bool:
        return key in self._leaving

    def resize(self, resizes: Sequence[Resize]) -> None:
        self.said.extend([("resize", [resize.workload for resize in resizes])] if resizes else [])

    def start(self, admits: Sequence[Admit], binds: Sequence[Bind]) -> None:
        self.said.append(("admit", [admit.workload for admit in admits]))
        self.said.append(("bind", [bind.pod for bind in binds]))

    def nominate(self, admits: Sequence[Admit], binds: Sequence[Bind]) -> None:
        self.said.append(("nominate", [*(admit.workload for admit in admits), *(bind.pod for bind in binds)]))

    def reserve(self, reserves: Sequence[Reserve]) -> None:
        self.said.append(("reserve", [reserve.workload for reserve in reserves]))

    def hold(self, holds: Sequence[Hold]) -> None:
        self.said.append(("hold", [hold.workload for hold in holds]))


def told(plan: Plan, *, quick: bool = False) -> list[tuple[str, list[str]]]:
    sink = Told(quick=quick)
    execute_plan(plan, sink)
    return sink.said


PLAN = Plan(
    binds=(*gang("high", "default/low"), *gang("other")),
    holds=(HELD,),
    admits=(HIGH, OTHER),
    evicts=(LOW_GOES,),
    reserves=(KEPT,),
)


def test_what_waits_for_others_to_leave_is_nominated_whole_and_the_rest_starts() -> None:
    assert told(PLAN) == [
        ("evict", ["default/low"]),
        ("admit", ["default/other"]),
        ("bind", ["default/other-0", "default/other-1"]),
        ("nominate", ["default/high", "default/high-0", "default/high-1"]),
        ("reserve", ["default/late"]),
        ("hold", ["default/late"]),
    ]


def test_where_the_evicted_are_gone_at_once_nothing_waits() -> None:
    said = dict(told(PLAN, quick=True))
    assert said["admit"] == ["default/high", "default/other"]
    assert said["bind"] == ["default/high-0", "default/high-1", "default/other-0", "default/other-1"]
    assert said["nominate"] == []


def test_a_pod_of_one_that_stays_can_be_waited_for() -> None:
    """Of an elastic gang some pods go: they are named, not the gang."""
    fewer = Evict("default/low", ("default/low-3",), "default/high", "Priority")
    said = dict(told(Plan(binds=gang("high", "default/low-3"), holds=(), evicts=(fewer,))))
    assert (said["bind"], said["nominate"]) == ([], ["default/high-0", "default/high-1"])


def test_whoever_has_left_already_is_not_waited_for() -> None:
    said = dict(told(Plan(binds=gang("high", "default/long-gone"), holds=())))
    assert said["bind"] == ["default/high-0", "default/high-1"]


def test_only_calendar_reservations_keep_nodes_in_their_status() -> None:
    launch = Reserve("reservation/launch", "", 100, 200, {"n-0": 2})
    assert reserved_nodes((KEPT, launch)) == {"launch": {"n-0": 2}}


WORKLOADS = st.sampled_from(["default/a", "default/b", "default/c"])
AFTERS = st.lists(WORKLOADS, max_size=2).map(tuple)


@given(
    afters=st.lists(st.tuples(AFTERS, AFTERS), max_size=6),
    evicted=st.sets(WORKLOADS),
    quick=st.booleans(),
)
def test_every_start_happens_or_waits_and_keeps_its_place(
    afters: list[tuple[tuple[str, ...], tuple[str, ...]]], evicted: set[str], quick: bool
) -> None:
    binds = tuple(Bind(f"default/p-{number}", "n", after=after) for number, (after, _) in enumerate(afters))
    admits = tuple(
        Admit(f"default/w-{number}", "Workload", "", (), after=after) for number, (_, after) in enumerate(afters)
    )
    evicts = tuple(Evict(workload, (), "default/other", "Priority") for workload in sorted(evicted))
    sink = Told(quick=quick)
    execute_plan(Plan(binds=binds, admits=admits, evicts=evicts), sink)
    said = dict(sink.said)
    leaving = set() if quick else evicted
    ready = [bind.pod for bind in binds if not leaving.intersection(bind.after)]
    assert said["bind"] == ready
    admitted = [admit.workload for admit in admits if not leaving.intersection(admit.after)]
    assert said["admit"] == admitted, "an admission that waits is decided on again"
    waiting = [start for start in (*admits, *binds) if leaving.intersection(start.after)]
    assert said["nominate"] == [start.workload if isinstance(start, Admit) else start.pod for start in waiting]
    assert [step for step, _ in sink.said] == ["evict", "admit", "bind", "nominate", "reserve", "hold"]


def test_two_equal_starts_are_two_starts() -> None:
    first, second = Bind("default/p", "n"), Bind("default/p", "n")
    waits = Bind("default/q", "n", after=("default/low",))
    said = dict(told(Plan(binds=(first, waits, second), evicts=(LOW_GOES,))))
    assert (said["bind"], said["nominate"]) == (["default/p", "default/p"], ["default/q"])


def test_sizes_change_after_evictions_and_before_admissions() -> None:
    plan = Plan(evicts=(LOW_GOES,), admits=(OTHER,), resizes=(Resize("default/train", ()),))
    assert [what for what, _ in told(plan)][:3] == ["evict", "resize", "admit"]
