"""Evictions go all or none: asked for first, refused as a whole, repeated until done, and never twice at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import pairwise

import msgspec
import pytest
from tests.apply.objects import budget, pod
from tests.kube.fake_api import FakeApi, refused
from tests.kube.memory_client import MemoryClient, lost_answer
from tests.kube.virtual_time import in_virtual_time, settle

from windlass.apply.evictor import Evictor, Victim
from windlass.apply.kueue import NON_PREEMPTION_MESSAGES
from windlass.kube.errors import ApiError, ServerUnavailable, Status, TooManyRequests
from windlass.kube.events import EventRecorder
from windlass.model.unstructured import Unstructured

PROTECTED = "Cannot evict pod as it would violate the pod's disruption budget."


def victim(workload: str, *pods: str, reason: str = "Priority") -> Victim:
    return Victim(workload, tuple((f"team/{name}", f"uid-{name}") for name in pods), reason)


GANG = victim("team/gang", "g0", "g1")
OTHER = victim("team/other", "o0")


class Evicting:
    """An evictor and its server, with running pods `g0`, `g1` and `o0` to `o2`."""

    def __init__(self, *objects: Unstructured) -> None:
        self.api = FakeApi()
        for name in ("g0", "g1", "o0", "o1", "o2"):
            self.api.store("pods", pod(name, on="n1", labels={"app": name}))
        for tree in objects:
            self.api.store("poddisruptionbudgets", tree)
        self.client = MemoryClient(self.api)
        self.recorder = EventRecorder(self.client, "test")
        self.leads = True
        self.evicted: list[int] = []
        self.refused: list[tuple[str, str, str]] = []
        self.evictor = Evictor(
            self.client,
            self.recorder,
            lambda: self.leads,
            self.evicted.append,
            lambda preemptor, key, message: self.refused.append((preemptor, key, message)),
        )

    async def evict(self, preemptor: str, *victims: Victim) -> list[str]:
        """The pods that were really evicted by this call."""
        before = len(self.client.sent)
        self.evictor.evict(preemptor, victims)
        await self.evictor.drain()
        return self.pods(before, is_dry_run=False)

    def pods(self, since: int = 0, *, is_dry_run: bool) -> list[str]:
        """Pods whose eviction was asked for."""
        return [
            request.path.split("/")[-2]
            for request in self.client.sent[since:]
            if request.path.endswith("/eviction") and ("dryRun" in dict(request.query)) is is_dry_run
        ]

    def is_leaving(self, name: str) -> bool:
        return "deletionTimestamp" in self.api.get("pods", f"team/{name}")["metadata"]

    async def events(self) -> list[tuple[str, str, str, str]]:
        """Pod, reason, action and note of the events."""
        sending = asyncio.create_task(self.recorder.run())
        await self.recorder.drain(60)
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        return [
            (event["regarding"]["name"], event["reason"], event["action"], event["note"])
            for event in self.api.objects.get("events", {}).values()
        ]


@in_virtual_time
async def test_every_eviction_is_asked_for_before_the_first_one_happens() -> None:
    scene = Evicting()
    await scene.evict("team/urgent", GANG, OTHER)
    steps = [("dryRun" in dict(request.query)) for request in scene.client.sent]
    assert steps == [True] * 3 + [False] * 3
    assert sorted(scene.pods(is_dry_run=True)) == sorted(scene.pods(is_dry_run=False)) == ["g0", "g1", "o0"]
    uids = {request.body["deleteOptions"]["preconditions"]["uid"] for request in scene.client.sent}
    assert uids == {"uid-g0", "uid-g1", "uid-o0"}, "never the next pod of the same name"
    assert scene.evicted == [2, 1]
    assert scene.is_leaving("g0")
    assert scene.is_leaving("g1")
    assert scene.is_leaving("o0")


@in_virtual_time
async def test_a_budget_that_refuses_one_victim_keeps_all_and_is_reported() -> None:
    scene = Evicting(budget("keeps", {"app": "g1"}))
    assert await scene.evict("team/urgent", OTHER, GANG) == []
    assert scene.refused == [("team/urgent", "team/g1", PROTECTED)]
    assert scene.evictor.refusals == 1
    assert scene.evicted == []
    assert await scene.events() == []
    assert not scene.is_leaving("o0")


@in_virtual_time
async def test_every_refused_pod_is_reported_and_counts_once() -> None:
    scene = Evicting(budget("a", {"app": "g0"}), budget("b", {"app": "o0"}))
    await scene.evict("team/urgent", OTHER, GANG)
    assert {key for _, key, _ in scene.refused} == {"team/g0", "team/o0"}
    assert scene.evictor.refusals == 1, "of one attempt"
    await scene.evict("team/second", OTHER)
    assert scene.evictor.refusals == 2


@in_virtual_time
async def test_an_evictor_without_anyone_to_tell_goes_on() -> None:
    scene = Evicting(budget("keeps", {"app": "g1"}))
    evictor = Evictor(scene.client, scene.recorder, lambda: True, scene.evicted.append)
    evictor.evict("team/urgent", [GANG])
    await evictor.drain()
    assert evictor.refusals == 1


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (TooManyRequests(429, Status(message=PROTECTED)), PROTECTED),
        (refused(400, "no"), "no"),
        (refused(403, "denied by a webhook"), "denied by a webhook"),
        (refused(422, "not valid"), "not valid"),
        (refused(429, ""), "429 no reason given"),
        (
            refused(500, "This pod has more than one PodDisruptionBudget, which …"),
            "This pod has more than one PodDisruptionBudget, which …",
        ),
    ],
)
@in_virtual_time
async def test_these_answers_are_refusals(error: ApiError, message: str) -> None:
    scene = Evicting()
    scene.client.fail("POST pods/g1/eviction", error)
    assert await scene.evict("team/urgent", GANG) == []
    assert scene.refused == [("team/urgent", "team/g1", message)]
    assert scene.evictor.refusals == 1


@pytest.mark.parametrize(
    "error",
    [
        refused(500, "etcd"),
        refused(503, "overloaded"),
        refused(401, "who?"),
        refused(408, "slow"),
        lost_answer(),
    ],
)
@in_virtual_time
async def test_a_server_that_could_not_say_refuses_nothing(error: Exception) -> None:
    scene = Evicting()
    scene.client.fail("POST pods/g1/eviction", error)
    assert await scene.evict("team/urgent", GANG) == []
    assert (scene.refused, scene.evictor.refusals, scene.evicted) == ([], 0, [])
    scene.client.recover()
    await asyncio.sleep(14.9)
    assert await scene.evict("team/urgent", GANG) == []
    await asyncio.sleep(0.2)
    assert await scene.evict("team/urgent", GANG) == ["g0", "g1"]


@pytest.mark.parametrize("state", ["deleted", "replaced"])
@in_virtual_time
async def test_a_pod_that_has_gone_by_itself_keeps_nobody(state: str) -> None:
    scene = Evicting()
    scene.api.remove("pods", "team/g1")
    if state == "replaced":
        scene.api.store("pods", pod("g1", uid="another", on="n1"))
    assert await scene.evict("team/urgent", GANG) == ["g0", "g1"]
    assert scene.is_leaving("g0")
    assert scene.evicted == [2]
    if state == "replaced":
        assert not scene.is_leaving("g1"), "the next pod of its name stays"


@in_virtual_time
async def test_a_pod_that_has_gone_hides_no_refusal_of_another() -> None:
    scene = Evicting(budget("keeps", {"app": "g1"}))
    scene.api.remove("pods", "team/g0")
    assert await scene.evict("team/urgent", GANG) == []
    assert [key for _, key, _ in scene.refused] == ["team/g1"]


@in_virtual_time
async def test_the_same_attempt_is_not_repeated_within_fifteen_seconds() -> None:
    scene = Evicting(budget("keeps", {"app": "g1"}))
    await scene.evict("team/urgent", GANG, OTHER)
    scene.api.remove("poddisruptionbudgets", "team/keeps")
    await asyncio.sleep(14.9)
    asked = len(scene.client.sent)
    assert await scene.evict("team/urgent", OTHER, GANG) == [], "in whichever order they are named"
    assert len(scene.client.sent) == asked, "not even a dry run"
    await asyncio.sleep(0.2)
    assert await scene.evict("team/urgent", OTHER, GANG) == ["o0", "g0", "g1"]


@in_virtual_time
async def test_after_a_refusal_other_victims_go_at_once() -> None:
    scene = Evicting(budget("keeps", {"app": "g1"}))
    await scene.evict("team/urgent", GANG)
    assert await scene.evict("team/urgent", OTHER) == ["o0"]


@in_virtual_time
async def test_a_refusal_for_one_preemptor_stops_no_other() -> None:
    scene = Evicting(budget("keeps", {"app": "g1"}))
    await scene.evict("team/urgent", GANG)
    scene.api.remove("poddisruptionbudgets", "team/keeps")
    assert await scene.evict("team/second", GANG) == ["g0", "g1"]


@in_virtual_time
async def test_an_eviction_for_another_ends_no_pause() -> None:
    scene = Evicting(budget("keeps", {"app": "g1"}))
    await scene.evict("team/urgent", GANG)
    scene.api.remove("poddisruptionbudgets", "team/keeps")
    await asyncio.sleep(5)
    await scene.evict("team/second", OTHER)
    assert await scene.evict("team/urgent", GANG) == []


@in_virtual_time
async def test_one_preemptor_evicts_once_at_a_time() -> None:
    scene = Evicting()
    held = scene.client.hold("POST pods/g0/eviction")
    scene.evictor.evict("team/urgent", [GANG])
    scene.evictor.evict("team/urgent", [OTHER])
    await settle()
    held.release()
    await scene.evictor.drain()
    assert sorted(scene.pods(is_dry_run=False)) == ["g0", "g1"]


@in_virtual_time
async def test_a_victim_of_two_preemptors_is_evicted_once() -> None:
    scene = Evicting()
    held = scene.client.hold("POST pods/g0/eviction")
    scene.evictor.evict("team/urgent", [GANG])
    scene.evictor.evict("team/second", [GANG, OTHER])
    scene.evictor.evict("team/third", [GANG])
    await settle()
    assert scene.pods(is_dry_run=False) == ["o0"], "the second one's own victim goes meanwhile"
    held.release()
    await scene.evictor.drain()
    assert sorted(scene.pods(is_dry_run=False)) == ["g0", "g1", "o0"]
    assert sorted(scene.evicted) == [1, 2]


@in_virtual_time
async def test_who_has_finished_frees_only_its_own_victims() -> None:
    scene = Evicting()
    held = scene.client.hold("POST pods/g0/eviction")
    scene.evictor.evict("team/urgent", [GANG])
    scene.evictor.evict("team/second", [OTHER])
    await settle()
    scene.evictor.evict("team/third", [GANG])
    await settle()
    assert scene.pods(is_dry_run=True).count("g1") == 1, "the gang is still the first one's"
    held.release()
    await scene.evictor.drain()


@in_virtual_time
async def test_a_refused_victim_is_free_for_another_preemptor() -> None:
    scene = Evicting(budget("keeps", {"app": "o0"}))
    await scene.evict("team/urgent", GANG, OTHER)
    assert await scene.evict("team/second", GANG) == ["g0", "g1"]


@in_virtual_time
async def test_a_victim_is_not_stopped_again_within_ten_seconds() -> None:
    """Its pods take their time to end."""
    scene = Evicting()
    assert await scene.evict("team/urgent", GANG) == ["g0", "g1"]
    await asyncio.sleep(5)
    assert await scene.evict("team/second", victim("team/more", "o1")) == ["o1"]
    await asyncio.sleep(4.9)
    assert await scene.evict("team/third", GANG) == []
    assert await scene.evict("team/third", GANG, OTHER) == ["o0"], "the others are"
    await asyncio.sleep(0.2)
    assert await scene.evict("team/fourth", GANG) == ["g0", "g1"]


def stopping(scene: Evicting, steps: list[str], error: Exception | None = None) -> Callable[[], Awaitable[None]]:
    async def stop() -> None:
        steps.append(f"stop after {len(scene.client.sent)} requests")
        if error is not None:
            raise error

    return stop


@in_virtual_time
async def test_a_queued_victim_is_stopped_by_its_workload_and_its_pods_are_left_alone() -> None:
    scene, steps = Evicting(), list[str]()
    queued = Victim(GANG.workload, GANG.pods, "InClusterQueue", stop=stopping(scene, steps))
    assert await scene.evict("team/urgent", queued) == []
    assert steps == ["stop after 2 requests"], "budgets are asked even so"
    assert scene.evicted == [2]
    assert [event[:2] for event in await scene.events()] == [("g0", "Preempted"), ("g1", "Preempted")]


@in_virtual_time
async def test_a_stop_that_fails_is_decided_again() -> None:
    scene, steps = Evicting(), list[str]()
    queued = Victim(GANG.workload, GANG.pods, "InClusterQueue", stop=stopping(scene, steps, refused(422, "no")))
    await scene.evict("team/urgent", queued, OTHER)
    assert scene.evicted == []
    assert await scene.events() == []
    await scene.evict("team/urgent", queued, OTHER)
    assert len(steps) == 1, "not at once"
    await asyncio.sleep(15.1)
    await scene.evict("team/urgent", queued, OTHER)
    assert len(steps) == 2


@in_virtual_time
async def test_a_bug_in_one_eviction_keeps_nothing_from_ending() -> None:
    scene, steps = Evicting(), list[str]()
    broken = Victim(GANG.workload, (), "InClusterQueue", stop=stopping(scene, steps, ZeroDivisionError()))
    scene.evictor.evict("team/urgent", [broken])
    assert await scene.evict("team/second", OTHER) == ["o0"]
    assert await scene.evict("team/urgent", OTHER) == [], "its preemptor is free for the next decision"


@pytest.mark.parametrize("error", [None, refused(403, "no"), refused(500, "etcd")])
@in_virtual_time
async def test_the_eviction_is_counted_first_and_goes_on_if_that_fails(error: Exception | None) -> None:
    scene, steps = Evicting(), list[str]()
    counted = Victim(GANG.workload, GANG.pods, "Priority", record_eviction=stopping(scene, steps, error))
    assert await scene.evict("team/urgent", counted) == ["g0", "g1"]
    assert steps == ["stop after 2 requests"], "after the dry runs, before the evictions"
    assert scene.evicted == [2]


@in_virtual_time
async def test_without_an_answer_to_the_count_nothing_is_evicted_yet() -> None:
    scene, steps = Evicting(), list[str]()
    record = stopping(scene, steps, ServerUnavailable("away"))
    counted = Victim(GANG.workload, GANG.pods, "Priority", record_eviction=record)
    assert await scene.evict("team/urgent", counted) == []
    assert scene.evicted == []


def pauses_of(scene: Evicting, pod_name: str) -> list[float]:
    times = scene.client.times(f"POST pods/{pod_name}/eviction?")
    return [later - earlier for earlier, later in pairwise(times)]


@pytest.mark.parametrize("error", [refused(429, "not now"), lost_answer()])
@in_virtual_time
async def test_an_eviction_after_the_dry_run_is_repeated_until_it_happens(error: Exception) -> None:
    """A gang that has lost some of its pods is useless."""
    scene = Evicting()
    scene.client.fail("POST pods/g1/eviction?", error, times=60)
    await scene.evict("team/urgent", GANG)
    assert scene.is_leaving("g1")
    assert scene.evicted == [2], "counted once"
    assert scene.pods(is_dry_run=False).count("g0") == 1, "only what has not happened is repeated"
    pauses = pauses_of(scene, "g1")
    assert len(pauses) == 60
    assert 0.5 <= pauses[0] <= 1.0
    assert 9.0 < max(pauses) <= 10.0, "longer and longer, up to ten seconds"


@in_virtual_time
async def test_a_server_that_says_when_to_come_back_is_left_alone_until_then() -> None:
    scene = Evicting()
    scene.client.fail("POST pods/g1/eviction?", TooManyRequests(429, Status(), retry_after=25.0), times=2)
    await scene.evict("team/urgent", GANG)
    assert pauses_of(scene, "g1") == [25.0, 25.0]


@pytest.mark.parametrize("error", [refused(404, "gone"), refused(409, "replaced")])
@in_virtual_time
async def test_a_pod_that_goes_between_dry_run_and_eviction_counts_as_evicted(error: ApiError) -> None:
    scene = Evicting()
    scene.client.fail("POST pods/g1/eviction?", error)
    await scene.evict("team/urgent", GANG)
    assert scene.pods(is_dry_run=False) == ["g0", "g1"]
    assert scene.evicted == [2]


@in_virtual_time
async def test_an_eviction_that_is_forbidden_after_the_dry_run_is_decided_again() -> None:
    scene = Evicting()
    scene.client.fail("POST pods/g1/eviction?", refused(403, "no"), times=1)
    await scene.evict("team/urgent", GANG)
    assert scene.evicted == []
    assert await scene.evict("team/urgent", GANG) == [], "not at once"
    await asyncio.sleep(15.1)
    assert await scene.evict("team/urgent", GANG) == ["g0", "g1"]
    assert scene.evicted == [2]


@in_virtual_time
async def test_who_loses_the_lease_evicts_nobody_and_says_so_of_nobody() -> None:
    scene = Evicting()
    held = scene.client.hold("POST pods/g1/eviction")
    scene.evictor.evict("team/urgent", [GANG])
    await settle()
    scene.leads = False
    held.release()
    await scene.evictor.drain()
    assert scene.pods(is_dry_run=False) == []
    assert scene.evicted == []
    assert await scene.events() == []


@in_virtual_time
async def test_who_loses_the_lease_while_an_eviction_is_refused_gives_up() -> None:
    scene = Evicting()
    scene.client.fail("POST pods/g1/eviction?", refused(429, "not now"))
    scene.evictor.evict("team/urgent", [GANG])
    await asyncio.sleep(30)
    scene.leads = False
    await asyncio.wait_for(scene.evictor.drain(), 60)
    assert scene.evicted == []
    assert await scene.events() == []


@pytest.mark.parametrize(
    ("reason", "work"),
    [
        ("Priority", "work of higher priority"),
        ("InClusterQueue", "work of higher priority in its ClusterQueue"),
        ("InCohortReclamation", "work of the queue whose quota it borrowed"),
        ("InCohortReclaimWhileBorrowing", "work of higher priority in its cohort"),
        ("InCohortFairSharing", "work of a queue that has less of its fair share"),
    ],
)
@in_virtual_time
async def test_preempted_pods_get_an_event_with_the_reason(reason: str, work: str) -> None:
    scene = Evicting()
    await scene.evict("team/urgent", victim("team/gang", "g0", "g1", reason=reason))
    note = f"Preempted ({reason}) for {work}: its controller or its owner has to create it again"
    assert await scene.events() == [
        ("g0", "Preempted", "Preempting", note),
        ("g1", "Preempted", "Preempting", note),
    ]


@pytest.mark.parametrize(("reason", "message"), NON_PREEMPTION_MESSAGES.items())
@in_virtual_time
async def test_pods_that_go_for_nobodys_sake_were_not_preempted(reason: str, message: str) -> None:
    scene = Evicting()
    await scene.evict("team/gang", victim("team/gang", "g0", reason=reason))
    assert await scene.events() == [("g0", "Evicted", "Evicting", message)]


@in_virtual_time
async def test_without_victims_nothing_is_sent() -> None:
    scene = Evicting()
    assert await scene.evict("team/urgent") == []
    assert not scene.client.sent


# Budgets that yield


def yielding(workload: str, *pods: str) -> Victim:
    return msgspec.structs.replace(victim(workload, *pods, reason="InCohortReclamation"), overrides_budgets=True)


@in_virtual_time
async def test_where_its_budget_yields_a_victim_is_deleted() -> None:
    scene = Evicting(budget("keeps", {"app": "g0"}))
    await scene.evict("team/owner", yielding("team/gang", "g0", "g1"))
    assert scene.is_leaving("g0")
    assert scene.is_leaving("g1")
    assert scene.refused == []
    deleted = [(request.path, request.body) for request in scene.client.sent if request.method == "DELETE"]
    assert deleted == [("/api/v1/namespaces/team/pods/g0", {"preconditions": {"uid": "uid-g0"}})], "g1 was evicted"


@in_virtual_time
async def test_what_no_budget_refuses_is_refused_all_the_same() -> None:
    scene = Evicting()
    scene.client.fail("POST pods/g1/eviction", refused(403, "denied by a webhook"))
    assert await scene.evict("team/owner", yielding("team/gang", "g0", "g1")) == []
    scene.client.fail("POST pods/o0/eviction", refused(429, "too many requests"))
    assert await scene.evict("team/owner", yielding("team/other", "o0")) == []
    assert [message for _, _, message in scene.refused] == ["denied by a webhook", "too many requests"]


@in_virtual_time
async def test_budgets_of_victims_that_are_stopped_yield_too() -> None:
    scene = Evicting(budget("keeps", {"app": "g0"}))
    stopped: list[str] = []

    async def stop() -> None:
        stopped.append("gang")

    await scene.evict("team/owner", msgspec.structs.replace(yielding("team/gang", "g0"), stop=stop))
    assert stopped == ["gang"]
    assert not [request for request in scene.client.sent if request.method == "DELETE"], "its controller does that"
