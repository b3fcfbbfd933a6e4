"""Owners that a queue stops and starts: every kind's field, and templates under the names that the model gives sets."""

from __future__ import annotations

from typing import Any

import pytest
from tests.live.owner_kinds import is_suspended, suspended_owners
from tests.live.test_live_queues import job

from windlass.apply.owners import SUSPEND_FIELDS, pod_templates_of, suspend_owner, terminal_state
from windlass.kube.resources import WATCHED_KINDS
from windlass.model.codec import decode_object
from windlass.model.owners import OwnerObject, owner_from_object

OWNERS = [job("j", 2, 1), *suspended_owners()]


def test_there_is_a_sample_of_every_kind() -> None:
    assert {one["kind"] for one in OWNERS} == set(SUSPEND_FIELDS)


@pytest.mark.parametrize("tree", OWNERS, ids=lambda one: one["kind"])
def test_the_field_that_stops_it(tree: dict[str, Any]) -> None:
    (kind,) = [one for one in WATCHED_KINDS if one.kind == tree["kind"]]
    for suspended in (False, True):
        body = suspend_owner(kind.resource_at(kind.versions[0]), "default/x", "u", suspended).body
        assert body["metadata"] == {"uid": "u"}
        assert is_suspended({**body, "kind": kind.kind}) is suspended
    wire = decode_object(tree)
    assert isinstance(wire, OwnerObject)
    assert owner_from_object(wire).suspended, "the model reads the same field"


@pytest.mark.parametrize("tree", OWNERS, ids=lambda one: one["kind"])
def test_templates_have_the_names_of_the_sets(tree: dict[str, Any]) -> None:
    wire = decode_object(tree)
    assert isinstance(wire, OwnerObject)
    assert set(pod_templates_of(tree)) == {one.name for one in owner_from_object(wire).pod_sets}


@pytest.mark.parametrize(
    ("status", "end"),
    [
        ({}, ""),
        ({"conditions": [{"type": "Complete", "status": "True"}]}, "Succeeded"),
        ({"conditions": [{"type": "Completed", "status": "True"}]}, "Succeeded"),
        ({"conditions": [{"type": "Succeeded", "status": "True"}]}, "Succeeded"),
        ({"conditions": [{"type": "Succeeded", "status": "False"}]}, ""),
        ({"conditions": [{"type": "Failed", "status": "True"}]}, "Failed"),
        ({"jobStatus": "RUNNING"}, ""),
        ({"jobStatus": "SUCCEEDED"}, "Succeeded"),
        ({"jobStatus": "STOPPED"}, "Failed"),
    ],
)
def test_how_it_has_ended(status: dict[str, Any], end: str) -> None:
    wire = decode_object({**OWNERS[1], "status": status})
    assert isinstance(wire, OwnerObject)
    assert terminal_state(wire) == end
