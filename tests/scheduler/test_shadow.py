"""The sink of `--shadow`: what would be done is logged when it is new, and compared with what another scheduler did."""

from __future__ import annotations

import pytest
from tests.apply.objects import node, pod
from tests.apply.scene import Scene
from tests.kube.virtual_time import in_virtual_time

from windlass.model.decision import Bind, Evict, Hold
from windlass.model.plan import Plan
from windlass.model.verdict import Verdict
from windlass.scheduler.shadow import ShadowSink


def plan(*binds: tuple[str, str], holds: dict[str, str] | None = None, evicts: tuple[Evict, ...] = ()) -> Plan:
    return Plan(
        binds=tuple(Bind(f"team/{name}", on) for name, on in binds),
        holds=tuple(Hold(f"team/{name}", Verdict(code)) for name, code in (holds or {}).items()),
        evicts=evicts,
    )


class Shadowing:
    def __init__(self, caplog: pytest.LogCaptureFixture, *pods: str) -> None:
        self.scene = Scene(node("n1"), node("n2"), *(pod(name) for name in pods))
        self.sink = ShadowSink(self.scene.cache)
        self._caplog = caplog
        caplog.set_level("INFO")

    def execute(self, decided: Plan) -> list[str]:
        """What is logged for it."""
        self._caplog.clear()
        self.sink.execute(decided, self.scene.snapshot())
        return [record.getMessage() for record in self._caplog.records]

    def bind(self, name: str, on: str) -> None:
        """Another scheduler does."""
        self.scene.put(pod(name, on=on))
        self.scene.watch()
        self.scene.cache.drain_inbox()


@in_virtual_time
async def test_decisions_are_logged_when_they_are_new(caplog: pytest.LogCaptureFixture) -> None:
    shadow = Shadowing(caplog, "p", "q")
    low = Evict("team/low", (), "team/p", "Priority")
    first = plan(("p", "n1"), holds={"q": "GPU_FULL"}, evicts=(low,))
    assert shadow.execute(first) == [
        "shadow: would bind team/p to n1",
        "shadow: would hold team/q (GPU_FULL)",
        "shadow: would evict team/low for team/p (Priority)",
    ]
    assert shadow.execute(first) == []
    assert shadow.execute(plan(("p", "n2"), holds={"q": "GANG_INCOMPLETE"}, evicts=(low,))) == [
        "shadow: would bind team/p to n2",
        "shadow: would hold team/q (GANG_INCOMPLETE)",
    ]
    assert shadow.execute(plan()) == []
    assert len(shadow.execute(first)) == 3, "what was given up and comes back is new"
    assert shadow.scene.client.sent == [], "nothing is written"


@in_virtual_time
async def test_decisions_are_compared_with_what_another_scheduler_did(
    caplog: pytest.LogCaptureFixture,
) -> None:
    shadow = Shadowing(caplog, "p", "q", "r")
    shadow.execute(plan(("r", "n1"), ("p", "n1"), ("q", "n1")))
    shadow.bind("p", "n1")
    shadow.bind("q", "n2")
    assert shadow.execute(plan(("r", "n1"))) == [
        "shadow: team/p was bound to n1; decided: n1",
        "shadow: team/q was bound to n2; decided: n1",
    ]
    assert (shadow.sink.matched, shadow.sink.mismatched) == (1, 1)
    assert shadow.execute(plan(("r", "n1"))) == [], "each is compared once"
    shadow.bind("r", "n1")
    shadow.execute(plan())
    assert (shadow.sink.matched, shadow.sink.mismatched) == (2, 1)


@in_virtual_time
async def test_a_pod_that_is_deleted_is_compared_with_nothing(caplog: pytest.LogCaptureFixture) -> None:
    shadow = Shadowing(caplog, "p")
    shadow.execute(plan(("p", "n1")))
    shadow.scene.api.remove("pods", "team/p")
    shadow.scene.watch()
    assert shadow.execute(plan()) == []
    assert (shadow.sink.matched, shadow.sink.mismatched) == (0, 0)
