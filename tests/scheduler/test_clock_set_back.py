"""A wall clock that is set back by an hour: nothing waits for that hour."""

from __future__ import annotations

from tests.apply.objects import decoded, pod

from windlass.cluster.delta import Refused
from windlass.cluster.store import Store
from windlass.model.refusal import BIND, Refusal
from windlass.scheduler.awaiting_owner import PodsAwaitingOwner

HOUR, NOW = 3600, 1_767_226_000
OWNER = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": "job", "uid": "job", "controller": True}


def test_a_pod_that_waits_for_its_owner_is_let_go() -> None:
    waiting = PodsAwaitingOwner({})
    waiting.is_watched = lambda kind, group: True
    waits = decoded(pod("p", ownerReferences=[OWNER]))
    assert waiting.must_wait(waits, NOW)
    assert waiting.pop_overdue(NOW) == []
    assert waiting.pop_overdue(NOW - HOUR) == ["team/p"]
    assert not waiting.must_wait(waits, NOW - HOUR)


def test_a_refusal_ends() -> None:
    store = Store()
    store.apply([Refused(Refusal(BIND, "team/p", NOW + 30, "uid", node="n1", message="no"))])
    assert store.snapshot(NOW).refusals.binds
    assert not store.snapshot(NOW - HOUR).refusals.binds
