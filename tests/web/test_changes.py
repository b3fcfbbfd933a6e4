"""The operator's objects as the page lists them, and whether a job or an operation needs a person or only time."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.embedded.page.feed import Feed, nodes, pod

from windlass.apply.messages import condition_message
from windlass.model.repair_state import ENDS_BY_ITSELF
from windlass.model.verdict import Verdict
from windlass.operator.kinds.gpu_repair import REPAIR_PHASES
from windlass.operator.kinds.reasons import REASONS, Reason
from windlass.web.changes import bring_up_view, change_view, repair_view
from windlass.web.page_state import CUSTOM_RESOURCE_DEFINITIONS, OPERATOR_VIEWS, PageState
from windlass.web.viewers import Viewer
from windlass.web.visible_objects import VisibleObjects

CHANGE = {
    "metadata": {"name": "r590", "creationTimestamp": "2026-01-01T00:00:00Z"},
    "spec": {"stack": "h100", "driver": {"version": "590.44.01"}, "waves": [{"nodes": 2}, {"nodes": "100%"}]},
    "status": {
        "phase": "Progressing",
        "reason": "Draining",
        "component": "driver",
        "from": "580.95.05",
        "to": "590.44.01",
        "wave": 1,
        "waves": 2,
        "nodes": 8,
        "changed": 3,
        "failed": 1,
        "stragglers": ["h100-3", "h100-4"],
        "gates": [{"name": "p99", "verdict": "Pass", "message": "1.02 of 1.1", "at": "2026-01-01T00:10:00Z"}],
        "deadline": "2026-01-01T01:00:00Z",
    },
}
REPAIR = {
    "metadata": {"name": "h100-3-6"},
    "spec": {"node": "h100-3", "device": 6, "fault": "Xid 79"},
    "status": {
        "phase": "Resetting",
        "reason": "Resetting",
        "opened": "2026-01-01T00:00:00Z",
        "deadline": "2026-01-01T00:05:00Z",
        "attempts": [{"rung": "reset", "at": "2026-01-01T00:01:00Z", "result": "Failed", "message": "in use"}],
    },
}
GPU_NODE = {
    "metadata": {"name": "h100-5"},
    "status": {
        "stack": "h100",
        "phase": "NotReady",
        "reason": "DriverMissing",
        "steps": [
            {"name": "driver", "owner": "host", "state": "Failed", "reason": "DriverMissing", "message": "none found"},
            {"name": "plugin", "owner": "agent", "state": "Done", "reason": "Done"},
        ],
    },
}


def with_status(tree: dict[str, Any], **status: Any) -> dict[str, Any]:
    return {**tree, "status": {**tree["status"], **status}}


def test_a_change_says_how_far_it_is() -> None:
    found = change_view(CHANGE)
    assert (found["component"], found["from"], found["to"]) == ("driver", "580.95.05", "590.44.01")
    assert (found["changed"], found["failed"], found["nodes"], found["wave"], found["waves"]) == (3, 1, 8, 1, 2)
    assert found["stragglers"] == ["h100-3", "h100-4"]
    assert found["gates"] == [{"name": "p99", "verdict": "Pass", "message": "1.02 of 1.1"}]
    assert (found["over"], found["needs"]) == (False, "time")
    assert found["message"] == REASONS[Reason.Draining].meaning


@pytest.mark.parametrize(
    ("status", "needs", "over"),
    [
        ({"phase": "Held", "reason": "GateFailing"}, "person", False),
        ({"phase": "Held", "reason": "Baking"}, "person", False),
        ({"phase": "Progressing", "reason": "Paused"}, "person", False),
        ({"phase": "Pending", "reason": "OutsideWindow"}, "time", False),
        ({"phase": "Baking", "reason": "Baking"}, "time", False),
        ({"phase": "Progressing", "reason": "CanaryWork"}, "time", False),
        ({"phase": "Progressing", "reason": "SomethingNewer"}, "person", False),
        ({"phase": "Failed", "reason": "NodesFailed"}, "", True),
    ],
)
def test_a_change_needs_a_person_where_its_reason_says_so(status: dict[str, str], needs: str, over: bool) -> None:
    found = change_view(with_status(CHANGE, **status))
    assert (found["needs"], found["over"]) == (needs, over)


def test_a_change_of_an_image_says_which() -> None:
    image = {"namespace": "chat", "name": "serve", "container": "main", "image": "vllm:2"}
    spec = {"stack": "h100", "workloadImage": image}
    found = change_view({"metadata": CHANGE["metadata"], "spec": spec})
    assert (found["component"], found["to"]) == ("workloadImage", "vllm:2")


def test_a_change_of_which_nothing_was_written_yet_is_shown_by_its_spec() -> None:
    found = change_view({key: CHANGE[key] for key in ("metadata", "spec")})
    assert (found["phase"], found["component"], found["to"], found["waves"]) == ("Pending", "driver", "590.44.01", 2)


@pytest.mark.parametrize("phase", REPAIR_PHASES)
def test_a_repair_needs_a_person_in_phases_that_do_not_end_by_themselves(phase: str) -> None:
    found = repair_view(with_status(REPAIR, phase=phase))
    expected = "" if phase == "Returned" else "time" if phase in ENDS_BY_ITSELF else "person"
    assert found["needs"] == expected
    assert found["attempts"][0]["result"] == "Failed"


def test_a_node_on_its_way_shows_the_steps_that_are_not_done() -> None:
    found = bring_up_view(GPU_NODE)
    assert found is not None
    assert [step["name"] for step in found["steps"]] == ["driver"]
    assert (found["needs"], found["remedy"]) == ("person", REASONS[Reason.DriverMissing].remedy)
    assert bring_up_view(with_status(GPU_NODE, phase="Ready")) is None
    assert bring_up_view(with_status(GPU_NODE, phase="NotOurs")) is None


def test_every_reason_is_of_one_kind() -> None:
    waits = {reason for reason, info in REASONS.items() if info.only_needs_time}
    assert {Reason.Draining, Reason.Baking, Reason.BudgetFull, Reason.Done} <= waits
    assert not waits & {Reason.GateFailing, Reason.AwaitingPerson, Reason.AwaitingTicket, Reason.RequestedByPerson}


def operations(feed: Feed) -> None:
    for resource in OPERATOR_VIEWS:
        feed.put(CUSTOM_RESOURCE_DEFINITIONS, {"metadata": {"name": resource}})
    feed.put("fleetchanges.windlass.dev", CHANGE)
    feed.put("gpurepairs.windlass.dev", REPAIR)
    feed.put("gpunodes.windlass.dev", GPU_NODE)


def test_they_come_and_go_with_the_live_stream() -> None:
    feed = Feed()
    state = PageState(feed)
    operations(feed)
    shown = json.loads(state.snapshot())
    assert [found["name"] for what in ("changes", "repairs", "bringUps") for found in shown[what]] == [
        "r590",
        "h100-3-6",
        "h100-5",
    ]
    feed.put("gpunodes.windlass.dev", with_status(GPU_NODE, phase="Ready"))
    feed.remove("fleetchanges.windlass.dev", CHANGE)
    changed = json.loads(state.drain_changes())
    assert changed["gone"] == {"changes": ["r590"], "bringUps": ["h100-5"]}


def test_who_may_not_list_nodes_sees_none_of_them() -> None:
    feed = Feed()
    operations(feed)
    hidden = PageState(VisibleObjects(feed, Viewer("ada", None, sees_nodes=False))).snapshot().decode()
    assert "h100" not in hidden
    shown = PageState(VisibleObjects(feed, Viewer("ada", frozenset({"own"}), sees_nodes=True))).snapshot().decode()
    assert "r590" in shown


def job(message: str = "", reason: str = "Unschedulable", **more: Any) -> dict[str, Any]:
    feed = Feed()
    feed.put("nodes", *nodes())
    tree = pod("train", {"nvidia.com/gpu": "1"}, waits=(reason, message) if message else None)
    tree["metadata"].update(more.pop("metadata", {}))
    tree["spec"].update(more)
    feed.put("pods", tree)
    found: dict[str, Any] = json.loads(PageState(feed).snapshot())["jobs"][0]
    return found


@pytest.mark.parametrize(
    ("message", "needs", "cause"),
    [
        ("0/10 nodes are available: all GPUs are in use. (GPU_FULL)", "time", "GPU_FULL"),
        ("0/10 nodes are available: 10 node(s) had untolerated taint(s). (TAINT_NOT_TOLERATED)", "person", None),
        ("0/10 nodes are available: it was not decided by Windlass.", "time", None),
        ("", "time", None),
    ],
)
def test_a_job_needs_a_person_where_the_engines_cause_does(message: str, needs: str, cause: str | None) -> None:
    found = job(message)
    assert found["needs"] == needs
    if cause:
        assert found["cause"] == cause


def test_a_planned_start_and_a_declared_duration_are_read() -> None:
    text = condition_message(Verdict("GPU_FULL", nodes=10, planned_start=1767263400, ahead=2))
    found = job(text, metadata={"annotations": {"windlass.dev/duration": "2h"}})
    assert (found["starts"], found["lasts"], found["needs"]) == (1767263400, 7200, "time")
    fragmented = condition_message(Verdict("GPU_FRAGMENTED", nodes=10, planned_start=1767263400))
    assert job(fragmented)["needs"] == "time", "with a start that is planned, nobody has to do anything"
    assert job(condition_message(Verdict("GPU_FRAGMENTED", nodes=10)))["needs"] == "person"
    assert job("x", activeDeadlineSeconds=90)["lasts"] == 90
    assert job("x", metadata={"annotations": {"windlass.dev/duration": "soon"}}).get("lasts") is None


def test_a_container_that_fails_again_and_again_needs_a_person() -> None:
    feed = Feed()
    feed.put("nodes", *nodes())
    tree = pod("serve", {"nvidia.com/gpu": "1"}, node="h100-0")
    feed.put("pods", tree)
    assert "needs" not in json.loads(PageState(feed).snapshot())["jobs"][0]
    waiting = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}}
    tree["status"]["containerStatuses"] = [{"name": "main", "state": waiting}]
    assert json.loads(PageState(feed).snapshot())["jobs"][0]["needs"] == "person"
