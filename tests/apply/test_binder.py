"""Binds come to a known end, whatever the server answers or doesn't, and no more than so many are under way."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.apply.objects import pod
from tests.kube.fake_api import FakeApi, refused
from tests.kube.memory_client import MemoryClient, lost_answer
from tests.kube.virtual_time import in_virtual_time, run_in_virtual_time, settle

from windlass.apply.binder import Binder, BindOutcome, BindResult, device_annotations
from windlass.kube.errors import ApiError, LeaseLost, ServerUnavailable, Status
from windlass.model.decision import Bind, DeviceGrant

BOUND, REFUSED, GONE = BindResult.BOUND, BindResult.REFUSED, BindResult.GONE
BIND = Bind("team/p", "n1", (DeviceGrant(0), DeviceGrant(3)))
MOST = 96
"""Binds under way at a time."""


class Binding:
    """A binder and the server that it sends to, with the pods `p`, `p0`, `p1`, …"""

    def __init__(self, pods: int = 0) -> None:
        self.api = FakeApi()
        self.client = MemoryClient(self.api)
        self.api.store("pods", pod("p"))
        for number in range(pods):
            self.api.store("pods", pod(f"p{number}"))
        self.outcomes: list[BindOutcome] = []
        self.leads = True
        self.binder = Binder(self.client, lambda: self.leads, self.outcomes.append)

    async def bind(self, pre_bind: Callable[[], Awaitable[None]] | None = None) -> BindOutcome:
        """The outcome of the bind of `p`."""
        self.binder.bind(BIND, "uid-p", pre_bind)
        await self.binder.drain()
        (outcome,) = self.outcomes
        return outcome

    def bind_many(self, *numbers: int) -> None:
        for number in numbers:
            self.binder.bind(Bind(f"team/p{number}", "n1"), f"uid-p{number}")

    @property
    def node(self) -> str:
        node: str = self.api.get("pods", "team/p")["spec"].get("nodeName", "")
        return node


@in_virtual_time
async def test_a_bind_names_node_devices_and_the_uid_of_the_pod() -> None:
    binding = Binding()
    assert await binding.bind() == BindOutcome(BIND, "uid-p", BOUND)
    (sent,) = binding.client.sent
    assert (sent.method, sent.path) == ("POST", "/api/v1/namespaces/team/pods/p/binding")
    assert sent.body["metadata"]["uid"] == "uid-p"
    assert binding.node == "n1"
    assert binding.api.get("pods", "team/p")["metadata"]["annotations"] == {"windlass.dev/devices": "0,3"}


@pytest.mark.parametrize(
    ("devices", "annotations"),
    [
        ((), {}),
        ((DeviceGrant(7),), {"windlass.dev/devices": "7"}),
        ((DeviceGrant(0, 500, replicas=2), DeviceGrant(1, 250)), {"windlass.dev/devices": "0,0,1"}),
        ((DeviceGrant(2, 500), DeviceGrant(1, 500)), {"windlass.dev/devices": "2,1"}),
    ],
)
def test_devices_are_annotated_in_the_order_of_the_decision(
    devices: tuple[DeviceGrant, ...], annotations: dict[str, str]
) -> None:
    assert device_annotations(Bind("team/p", "n1", devices)) == annotations


@pytest.mark.parametrize(
    ("error", "result", "refusal"),
    [
        (refused(404, 'pods "p" not found'), GONE, ""),
        (refused(409, "pod p is already assigned"), GONE, ""),
        (refused(400, "bad node"), REFUSED, "bad node"),
        (refused(403, "denied by a webhook"), REFUSED, "denied by a webhook"),
        (refused(422, "not on this node"), REFUSED, "not on this node"),
        (refused(499, ""), REFUSED, "499 no reason given"),
    ],
)
@in_virtual_time
async def test_what_the_server_says_is_the_outcome(error: ApiError, result: BindResult, refusal: str) -> None:
    binding = Binding()
    binding.client.fail("POST pods/p/binding", error)
    assert await binding.bind() == BindOutcome(BIND, "uid-p", result, str(error), refusal)
    assert len(binding.client.sent) == 1, "there is nothing to look up"


@pytest.mark.parametrize("error", [lost_answer(), refused(500, "etcd"), refused(503, "overloaded")])
@pytest.mark.parametrize(
    ("happened", "result"),
    [
        ("bound here", BOUND),
        ("nothing", REFUSED),
        ("bound to n0", GONE),
        ("bound to n2", GONE),
        ("deleted", GONE),
        ("replaced", GONE),
    ],
)
@in_virtual_time
async def test_without_an_answer_the_pod_itself_says_what_happened(
    error: Exception, happened: str, result: BindResult
) -> None:
    binding = Binding()
    binding.api.store("pods", pod("p", on="n1", namespace="other"))
    binding.client.fail("POST pods/p/binding", error, is_applied=happened == "bound here")
    if happened.startswith("bound to "):
        binding.api.store("pods", pod("p", on=happened.removeprefix("bound to ")))
    elif happened in ("deleted", "replaced"):
        binding.api.remove("pods", "team/p")
    if happened == "replaced":
        binding.api.store("pods", pod("p", uid="another", on="n1"))
    assert await binding.bind() == BindOutcome(BIND, "uid-p", result), "the node is not to blame"
    assert [request.method for request in binding.client.sent] == ["POST", "GET"], "it is not sent twice"
    assert binding.client.sent[1].path == "/api/v1/namespaces/team/pods", "a list, which RBAC grants"
    assert binding.client.sent[1].query == (("fieldSelector", "metadata.name=p"),)


@pytest.mark.parametrize("error", [lost_answer(), refused(503, "overloaded"), refused(403, "not now")])
@in_virtual_time
async def test_a_bind_stays_in_flight_until_the_pod_can_be_read(error: Exception) -> None:
    binding = Binding()
    binding.client.fail("POST pods/p/binding", lost_answer(), is_applied=True)
    binding.client.fail("GET pods", error, times=60)
    binding.binder.bind(BIND, "uid-p")
    await asyncio.sleep(60)
    assert (binding.outcomes, binding.binder.in_flight) == ([], 1)
    await binding.binder.drain()
    assert [outcome.result for outcome in binding.outcomes] == [BOUND]
    pauses = [later - earlier for earlier, later in pairwise(binding.client.times("GET pods"))]
    assert len(pauses) == 60
    assert pauses[0] <= 0.5
    assert 4.0 < max(pauses) <= 5.0, "longer and longer, up to five seconds"


@in_virtual_time
async def test_nothing_is_sent_without_the_lease() -> None:
    binding = Binding()
    binding.leads = False
    outcome = await binding.bind()
    assert (outcome.result, outcome.refusal) == (REFUSED, "")
    assert "lease" in outcome.error
    assert not binding.client.sent


@in_virtual_time
async def test_at_most_so_many_are_sent_at_a_time_and_the_rest_follows() -> None:
    binding = Binding(pods=MOST + 10)
    held = binding.client.hold("POST binding")
    binding.bind_many(*range(MOST + 10))
    await settle()
    assert len(held.requests) == MOST
    assert (binding.binder.in_flight, binding.binder.has_backlog) == (MOST + 10, True)
    held.release()
    await binding.binder.drain()
    assert [outcome.result for outcome in binding.outcomes] == [BOUND] * (MOST + 10)
    last = [request.path.split("/")[-2] for request in binding.client.sent[MOST:]]
    assert last == [f"p{number}" for number in range(MOST, MOST + 10)], "first come, first sent"
    assert (binding.binder.in_flight, binding.binder.has_backlog) == (0, False)


@in_virtual_time
async def test_slots_are_free_again_after_every_round() -> None:
    binding = Binding(pods=4 * MOST)
    for first in (0, MOST):
        binding.bind_many(*range(first, first + MOST))
        await binding.binder.drain()
    held = binding.client.hold("POST binding")
    binding.bind_many(*range(2 * MOST, 4 * MOST))
    await settle()
    assert len(held.requests) == MOST, "as many as at first, and no more"
    held.release()
    await binding.binder.drain()


@given(batches=st.lists(st.integers(0, 150), min_size=1, max_size=3))
@settings(max_examples=15)
def test_every_bind_is_sent_once_and_has_one_outcome(batches: list[int]) -> None:
    async def main() -> None:
        binding = Binding(pods=sum(batches))
        number = 0
        for batch in batches:
            binding.bind_many(*range(number, number + batch))
            number += batch
            assert binding.binder.in_flight >= batch
            await asyncio.sleep(0)
        await binding.binder.drain()
        sent = sorted(request.path for request in binding.client.sent)
        assert sent == sorted(f"/api/v1/namespaces/team/pods/p{number}/binding" for number in range(sum(batches)))
        assert [outcome.result for outcome in binding.outcomes] == [BOUND] * sum(batches)
        assert len({outcome.uid for outcome in binding.outcomes}) == sum(batches)

    run_in_virtual_time(main())


@in_virtual_time
async def test_volumes_are_bound_first_and_take_no_slot() -> None:
    binding = Binding(pods=MOST)
    held = binding.client.hold("POST binding")
    binding.bind_many(*range(MOST))
    volumes = asyncio.Event()

    async def bind_volumes() -> None:
        volumes.set()

    binding.binder.bind(BIND, "uid-p", bind_volumes)
    await settle()
    assert volumes.is_set()
    assert binding.binder.has_backlog, "now the pod itself waits for a slot"
    held.release()
    await binding.binder.drain()
    assert binding.outcomes[-1] == BindOutcome(BIND, "uid-p", BOUND)


@in_virtual_time
async def test_a_bind_waits_until_its_volumes_are_bound() -> None:
    binding = Binding()

    async def bind_volumes() -> None:
        await asyncio.sleep(30)
        assert not binding.client.sent

    assert (await binding.bind(bind_volumes)).result is BOUND
    assert len(binding.client.sent) == 1


@pytest.mark.parametrize(
    ("error", "result", "refusal"),
    [
        (ApiError(504, Status(message="no volume in time")), REFUSED, "no volume in time"),
        (refused(409, "the volume has changed"), GONE, ""),
        (refused(404, "claim was deleted"), GONE, ""),
        (ServerUnavailable("away"), REFUSED, ""),
        (LeaseLost("lost"), REFUSED, ""),
    ],
)
@in_virtual_time
async def test_without_its_volumes_a_pod_is_not_bound(error: Exception, result: BindResult, refusal: str) -> None:
    binding = Binding()

    async def bind_volumes() -> None:
        raise error

    assert await binding.bind(bind_volumes) == BindOutcome(BIND, "uid-p", result, str(error), refusal)
    assert not binding.client.sent


@in_virtual_time
async def test_a_bug_costs_one_bind_and_no_slot() -> None:
    binding = Binding(pods=2 * MOST)
    binding.client.fail("POST binding", ZeroDivisionError("a bug"), times=MOST)
    binding.bind_many(*range(MOST))
    await binding.binder.drain()
    assert [outcome.result for outcome in binding.outcomes] == [REFUSED] * MOST, "they are decided on again"
    binding.bind_many(*range(MOST, 2 * MOST))
    await asyncio.wait_for(binding.binder.drain(), 60)
    assert [outcome.result for outcome in binding.outcomes[MOST:]] == [BOUND] * MOST
