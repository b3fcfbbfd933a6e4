"""Quota that was given away is given away, whenever the server answers and whenever the watch shows it."""

from __future__ import annotations

import random

import pytest
from tests.apply.workload_server import Scheduling, Waiting, WorkloadServer, cohort, job, turn, workload

from windlass.apply import admission, owner_workloads
from windlass.kube.backoff import Backoff
from windlass.kube.errors import ApiError, ServerUnavailable, Status

pytestmark = pytest.mark.asyncio
PREEMPTS = {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any"}


@pytest.fixture(autouse=True)
def _without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """The order of things is the test's alone."""
    monkeypatch.setattr(admission, "Backoff", lambda **_: Backoff(first=0.0, most=0.0))


async def full_cohort(server: WorkloadServer) -> Scheduling:
    """A cohort of 16 GPUs, with 16 of them just given to the two that came first; nothing of it is on the watch."""
    scene = Scheduling(server, *cohort(8, 4, 4))
    for name, queue in (("early-a", "a"), ("early-b", "b")):
        server.put(workload(name, 8, queue, created=10))
    scene.watch()
    await scene.decide()
    return scene


async def test_an_admission_counts_before_it_is_on_the_watch() -> None:
    """Others that go before the first ones come while those are being written, as under load with many Jobs."""
    server = WorkloadServer()
    scene = await full_cohort(server)
    for number in range(4):
        server.put(workload(f"late-{number}", 8, "abc"[number % 3], created=number, priority=number))
    scene.watch()
    await scene.decide()
    server.answer_all()
    await turn()
    await scene.decide()
    server.answer_all()
    await turn()
    assert server.admitted() == {"ns/early-a", "ns/early-b"}
    scene.watch()
    await scene.decide()
    assert server.reserved() == 16
    assert not server.waiting, "nothing is written again"


async def test_an_older_state_on_the_watch_takes_no_admission_back() -> None:
    server = WorkloadServer()
    scene = await full_cohort(server)
    told = {**server.objects["ns/early-a"], "status": {"conditions": []}}
    server.put(told)  # somebody changed its words before the admission got there
    scene.watch()
    server.put(workload("late", 8, "a", created=1, priority=5))
    scene.watch()
    await scene.decide()
    while server.waiting:
        server.answer_all()
        await turn()
    assert server.admitted() == {"ns/early-a", "ns/early-b"}, "in spite of the conflict"
    assert server.reserved() == 16


@pytest.mark.parametrize("applied", [False, True])
async def test_an_admission_without_an_answer_is_looked_up(applied: bool) -> None:
    server = WorkloadServer()
    scene = await full_cohort(server)
    for one in [*server.waiting]:
        server.lose(one, applied=applied)
    await turn()
    server.put(workload("late", 8, "a", created=1, priority=5))
    scene.watch()
    await scene.decide()
    while server.waiting:
        server.answer_all()
        await turn()
    scene.watch()
    await scene.decide()
    assert server.admitted() == {"ns/early-a", "ns/early-b"}


async def test_what_was_refused_is_free_again() -> None:
    server = WorkloadServer()
    scene = await full_cohort(server)
    refused = next(one for one in server.waiting if "early-a" in one.request.path)
    server.answer(refused, ApiError(422, Status(message="no")))
    server.answer_all()
    await turn()
    server.put(workload("late", 8, "a", created=20, priority=1))
    scene.watch()
    await scene.decide()
    server.answer_all()
    await turn()
    assert server.admitted() == {"ns/early-b", "ns/late"}


async def test_what_is_deleted_meanwhile_is_free_again() -> None:
    server = WorkloadServer()
    scene = await full_cohort(server)
    server.delete("ns/early-a")
    server.put(workload("late", 8, "a", created=20))
    scene.watch()
    server.answer_all()
    await turn()
    await scene.decide()
    server.answer_all()
    await turn()
    assert server.admitted() == {"ns/early-b", "ns/late"}


async def test_a_changed_object_of_the_same_name_is_another_one() -> None:
    server = WorkloadServer()
    scene = await full_cohort(server)
    server.delete("ns/early-a")
    again = workload("early-a", 4, "a", created=20)
    again["metadata"]["uid"] = "another"
    server.put(again)
    scene.watch()
    server.answer_all()
    await turn()
    await scene.decide()
    server.answer_all()
    await turn()
    assert server.reserved() == 12


async def test_words_under_way_delay_an_admission_and_drop_it_not() -> None:
    """What holds it is being written to the Workload when its turn comes."""
    server = WorkloadServer()
    scene = Scheduling(server, *cohort(8))
    server.put(workload("first", 8, created=1))
    server.put(workload("second", 8, created=2))
    scene.watch()
    plan = await scene.decide()
    server.answer_all()
    await turn()
    for hold in plan.holds:
        scene.carrier.admissions.report_pending(hold)
    await turn()
    server.finish("ns/first")
    scene.watch()
    await scene.decide()
    while server.waiting:
        server.answer_all()
        await turn()
    assert server.admitted() == {"ns/second"}


async def evicting(server: WorkloadServer) -> Scheduling:
    """`urgent` takes the place of `small`, which costs less than `large`, and the eviction is being written."""
    scene = Scheduling(server, *cohort(8, preemption=PREEMPTS))
    server.put(workload("small", 4, created=1))
    server.put(workload("large", 4, created=1, priority=1))
    scene.watch()
    await scene.decide()
    server.answer_all()
    await turn()
    scene.watch()
    server.put(workload("urgent", 4, created=20, priority=9))
    scene.watch()
    await scene.decide()
    (one,) = server.waiting
    assert one.request.body["status"]["admission"] is None, "an eviction"
    return scene


async def test_an_eviction_frees_its_quota_once() -> None:
    server = WorkloadServer()
    scene = await evicting(server)
    await scene.decide()
    assert len(server.waiting) == 1, "nobody else goes, and nobody starts, while it is being written"
    server.put(workload("next", 4, created=21))
    server.answer_all()
    await turn()
    await scene.decide()
    assert not server.waiting, "its quota is not free before the watch says so"
    scene.watch()
    await scene.decide()
    await scene.decide()
    server.answer_all()
    await turn()
    assert server.admitted() == {"ns/large", "ns/urgent"}
    assert server.reserved() == 8


async def test_an_eviction_that_was_refused_is_none() -> None:
    server = WorkloadServer()
    scene = await evicting(server)
    (one,) = server.waiting
    server.answer(one, ApiError(422, Status(message="no")))
    await turn()
    plan = await scene.decide()
    assert [evict.workload for evict in plan.evicts] == ["ns/small"], "it runs, and is asked to go again"


async def test_an_eviction_waits_for_the_admission_that_it_undoes() -> None:
    server = WorkloadServer()
    scene = Scheduling(server, *cohort(8, preemption=PREEMPTS))
    server.put(workload("small", 8, created=1))
    scene.watch()
    await scene.decide()
    server.put(workload("urgent", 8, created=20, priority=9))
    scene.watch()
    await scene.decide()
    (one,) = server.waiting
    assert one.request.body["status"]["admission"], "the admission, which has no answer yet"
    server.answer_all()
    await turn()
    server.answer_all()
    await turn()
    assert not server.admitted()
    scene.watch(1)
    await scene.decide()
    assert not server.waiting, "the watch has shown the admission, and not yet that it was taken back"
    scene.watch()
    await scene.decide()
    server.answer_all()
    await turn()
    assert server.admitted() == {"ns/urgent"}


async def test_an_evicted_job_that_goes_on_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a leader leaves it that is killed between the two writes of an eviction."""
    monkeypatch.setattr(owner_workloads, "RETRY_SECONDS", 0.0)
    server = WorkloadServer()
    evicted = {"conditions": [{"type": "Evicted", "status": "True", "reason": "Preempted"}]}
    server.put(workload("w", 8, owner="train", status=evicted))
    server.put(job("train"))
    scene = Scheduling(server, *cohort(4))
    scene.watch()
    for _ in range(3):
        await scene.decide()
    stops = [one for one in server.sent if one.path.endswith("/jobs/train")]
    assert [one.body["spec"] for one in stops][:1] == [{"suspend": True}]


async def test_an_eviction_that_is_asked_again_undoes_no_later_admission() -> None:
    """Its answer is lost, the watch shows it, and the workload has its next turn before it is asked again."""
    server = WorkloadServer()
    scene = await evicting(server)
    (one,) = server.waiting
    server.apply(one)
    server.delete("ns/urgent")
    scene.watch()
    await scene.decide()
    server.answer(one, ServerUnavailable("connection reset"))
    await turn()
    (again,) = server.waiting
    assert again.request.body["status"]["admission"], "an admission, and no second eviction"
    server.answer_all()
    server.put(workload("next", 4, created=0))
    await turn()
    await scene.decide()
    server.answer_all()
    await turn()
    assert server.admitted() == {"ns/large", "ns/small"}


@pytest.mark.parametrize("seed", range(20))
async def test_never_more_than_the_cohort_has(seed: int) -> None:
    """Whatever order answers, lost answers, changes on the watch and decisions come in."""
    draw = random.Random(seed)
    server = WorkloadServer()
    scene = Scheduling(server, *cohort(6, 5, 5, preemption=PREEMPTS if seed % 2 else None))
    number = 0
    late: list[Waiting] = []

    def create() -> None:
        nonlocal number
        number += 1
        server.put(
            workload(
                f"w{number}",
                draw.randint(1, 6),
                draw.choice("abc"),
                priority=draw.randint(0, 3),
                created=draw.randint(0, 600),
            )
        )

    def answer() -> None:
        if not server.waiting:
            return
        one = draw.choice(server.waiting)
        fate = draw.random()
        if fate < 0.8:
            server.answer(one, server.apply(one))
        elif fate < 0.9:
            server.lose(one, applied=True)
        elif fate < 0.95:
            server.lose(one, applied=False)
        else:
            server.lose(one, applied=False)
            late.append(one)

    def arrive_late() -> None:
        if late:
            server.apply(late.pop())

    def end() -> None:
        some = sorted(server.objects)
        if some:
            (server.finish if draw.random() < 0.7 else server.delete)(draw.choice(some))

    most = 0
    for _ in range(200):
        step = draw.choices([create, answer, arrive_late, end, None], [5, 6, 1, 1, 5])[0]
        if step is None:
            await scene.decide()
        else:
            step()
        if draw.random() < 0.3 and server.unseen:
            scene.watch(draw.randint(1, len(server.unseen)))
        await turn()
        most = max(most, server.reserved())
        assert server.reserved() <= 16, f"seed {seed}"
    assert most >= 10, "most of it was given away"
