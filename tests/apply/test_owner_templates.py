"""What admission changes in an owner of any kind, and that stopping it undoes all of that."""

from __future__ import annotations

import copy

import pytest
from tests.live.owner_kinds import suspended_owners
from tests.live.test_live_queues import job

from windlass.apply import kueue
from windlass.apply.owner_templates import merge_difference, pod_changes, started_owner, stopped_owner
from windlass.apply.owners import pod_templates_of
from windlass.model.codec import decode_object
from windlass.model.kueue import WorkloadObject
from windlass.model.kueue.queue_wire import ResourceFlavorSpec
from windlass.model.owners import OwnerObject, owner_from_object
from windlass.model.pod import PodSpec, Toleration
from windlass.model.unstructured import Unstructured
from windlass.simulate.scenario.object_changes import merge_patch

OWNERS = [tree for tree in (job("j", 2, 1), *suspended_owners()) if pod_templates_of(tree)]
SPOT = ResourceFlavorSpec(
    node_labels={"pool": "spot"}, tolerations=(Toleration(key="spot", operator="Exists", effect="NoSchedule"),)
)


def workload_of(raw: Unstructured) -> Unstructured:
    raw["metadata"].setdefault("uid", "u")
    raw["metadata"].setdefault("namespace", "team")
    wire = decode_object(raw)
    assert isinstance(wire, OwnerObject)
    queue = kueue.WorkloadQueue("main", 0, "v1beta2")
    return kueue.build_workload(raw, owner_from_object(wire), pod_templates_of(raw), queue)


def decoded(tree: Unstructured) -> WorkloadObject:
    found = decode_object(tree)
    assert isinstance(found, WorkloadObject)
    return found


@pytest.mark.parametrize("tree", OWNERS, ids=lambda tree: tree["kind"])
@pytest.mark.parametrize("own", [{}, {"nodeSelector": {"a": "b"}, "tolerations": [{"key": "k", "value": ""}]}])
def test_every_kind_runs_with_its_flavors_and_is_restored_byte_by_byte(tree: Unstructured, own: Unstructured) -> None:
    raw = copy.deepcopy(tree)
    for template in pod_templates_of(raw).values():
        template["spec"].update(copy.deepcopy(own))
    workload = copy.deepcopy(workload_of(raw))
    flavors = {part["name"]: [SPOT] for part in workload["spec"]["podSets"]}
    started = started_owner(raw, decoded(workload), flavors)
    for template in pod_templates_of(started).values():
        assert template["spec"]["nodeSelector"] == {**own.get("nodeSelector", {}), "pool": "spot"}
        assert template["spec"]["tolerations"][-1] == {"key": "spot", "operator": "Exists", "effect": "NoSchedule"}
        assert len(template["spec"]["tolerations"]) == 1 + len(own.get("tolerations", ()))
    assert merge_patch(raw, merge_difference(raw, started)) == started
    assert stopped_owner(started, workload) == raw
    again = started_owner(started, decoded(workload), {})
    assert stopped_owner(again, workload) == raw, "also one that was never restored"


def test_what_a_flavor_adds_to_a_pod() -> None:
    toleration = {"key": "spot", "operator": "Exists", "effect": "NoSchedule"}
    assert pod_changes(PodSpec(), []) == {}
    assert pod_changes(PodSpec(), [SPOT]) == {"nodeSelector": {"pool": "spot"}, "tolerations": [toleration]}
    tolerant = PodSpec(node_selector={"pool": "spot"}, tolerations=SPOT.tolerations)
    assert pod_changes(tolerant, [SPOT, SPOT]) == {}


@pytest.mark.parametrize(
    ("before", "after", "patch"),
    [
        ({"a": 1}, {"a": 1}, {}),
        ({"a": 1, "b": 2}, {"a": 3}, {"a": 3, "b": None}),
        ({"a": {"b": [1], "c": 1}}, {"a": {"b": [1, 2], "c": 1}}, {"a": {"b": [1, 2]}}),
        ({}, {"a": {"b": 1}}, {"a": {"b": 1}}),
    ],
)
def test_the_patch_from_one_tree_to_another(before: Unstructured, after: Unstructured, patch: Unstructured) -> None:
    assert merge_difference(before, after) == patch
