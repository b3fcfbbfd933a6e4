"""Lists that expire halfway or miss a deletion: what the handler knows in the end is what the server has."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.apply.objects import pod
from tests.kube.fake_api import FakeApi, refused
from tests.kube.memory_client import MemoryClient
from tests.kube.virtual_time import in_virtual_time, run_in_virtual_time, settle

from windlass.cluster.delta import Deleted, Delta, Put
from windlass.kube.informer import Informer
from windlass.kube.resources import PODS

EXPIRED = refused(410, "the continue token has expired")


class Watching:
    """An informer of pods, two a page, and what its handler knows."""

    def __init__(self, *names: str) -> None:
        self.api = FakeApi()
        for name in names:
            self.api.store("pods", pod(name))
        self.client = MemoryClient(self.api)
        self.known: dict[str, str] = {}
        self.informer = Informer(self.client, PODS, self.handle, page=2)
        self.task = asyncio.create_task(self.informer.run())

    def handle(self, deltas: Sequence[Delta]) -> None:
        for delta in deltas:
            if isinstance(delta, Put):
                self.known[delta.object.key] = delta.object.metadata.resource_version
            else:
                assert isinstance(delta, Deleted)
                self.known.pop(delta.key, None)

    def is_current(self) -> bool:
        pods = self.api.objects.get("pods", {})
        return self.known == {key: tree["metadata"]["resourceVersion"] for key, tree in pods.items()}

    async def end(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


@pytest.mark.parametrize("is_first", [True, False])
@in_virtual_time
async def test_what_goes_while_a_list_expires_is_reported_as_deleted(is_first: bool) -> None:
    """The handler has it from the first page, and the list that follows does not have it."""
    watching = Watching("a", "b", "c", "d")
    held = watching.client.hold("GET pods?continue")
    watching.client.fail("GET pods?continue", EXPIRED, times=1)
    if not is_first:
        held.release()
        await asyncio.sleep(1)
        assert watching.is_current()
        watching.client.fail("GET pods?continue", EXPIRED, times=1)
        held = watching.client.hold("GET pods?continue")
        relisting = asyncio.create_task(watching.informer.relist())
        await settle()
        watching.api.store("pods", pod("aa"))
    await settle()
    assert "team/a" in watching.known
    watching.api.remove("pods", "team/a")
    held.release()
    await asyncio.sleep(1)
    assert watching.is_current()
    assert watching.client.sent[-2].query == (), "the second list is in one piece"
    if not is_first:
        await relisting
    await watching.end()


@given(
    names=st.sets(st.sampled_from("abcdefg")),
    removed=st.sets(st.sampled_from("abcdefg")),
    added=st.sets(st.sampled_from("hijk")),
    expires=st.integers(0, 3),
)
@settings(max_examples=40)
def test_whatever_changes_between_two_pages_the_handler_is_current_in_the_end(
    names: set[str], removed: set[str], added: set[str], expires: int
) -> None:
    async def main() -> None:
        watching = Watching(*names)
        held = watching.client.hold("GET pods?continue")
        watching.client.fail("GET pods?continue", EXPIRED, times=expires)
        await settle()
        for name in removed & names:
            watching.api.remove("pods", f"team/{name}")
        for name in added:
            watching.api.store("pods", pod(name))
        held.release()
        await asyncio.sleep(60)
        assert watching.is_current()
        await watching.end()

    run_in_virtual_time(main())
