"""What `why` shows of work that is asked to leave, has left and come back, and of work that waits for it."""

from __future__ import annotations

import json
from typing import Any

from tests.diagnose.objects import ask, node, pod, thing
from tests.diagnose.test_outlook import job, queues

from windlass.cli.why_text import diagnosis_text
from windlass.model.unstructured import Unstructured

ASKED = {
    "id": "x",
    "asked": "2026-03-01T11:59:00Z",
    "until": "2026-03-01T12:01:00Z",
    "cause": "Priority",
    "for": "default/urgent",
}
OPTED_IN = {"windlass.dev/on-preemption": "ask", "windlass.dev/checkpoint-grace": "2m"}


def asked_pod(**answer: str) -> Unstructured:
    annotations = {**OPTED_IN, "windlass.dev/ask": json.dumps(ASKED)}
    if answer:
        annotations["windlass.dev/ask-answer"] = json.dumps({"id": "x", **answer})
    return pod("low", 8, on="g1", annotations=annotations, status={"phase": "Running"})


def test_work_that_is_asked() -> None:
    found = ask("pod/low", node("g1", 8), asked_pod())
    assert found.moves == (
        "asked at 2026-03-01T11:59:00Z to write a checkpoint by 2026-03-01T12:01:00Z, to make room for default/urgent",
        "it has not answered yet; it is evicted at 2026-03-01T12:01:00Z all the same",
    )
    assert "\n  asked at 2026-03-01T11:59:00Z" in diagnosis_text(found, wide=False)


def test_work_that_has_answered() -> None:
    found = ask("pod/low", node("g1", 8), asked_pod(checkpoint="2026-03-01T11:59:04Z", where="s3://b/7"))
    answered = "answered at 2026-03-01T11:59:04Z, with a checkpoint of 2026-03-01T11:59:04Z in s3://b/7"
    assert found.moves[1] == f"{answered}: it is evicted next"


def test_an_answer_that_does_not_count() -> None:
    found = ask("pod/low", node("g1", 8), asked_pod(checkpoint="2026-03-01T11:59:04Z", where="pod:///tmp/x"))
    assert found.moves[1] == "its answer does not count: the checkpoint pod:///tmp/x is lost with the pod"


def test_a_pod_that_waits_for_a_checkpoint() -> None:
    urgent = pod("urgent", 8, spec={"priority": 5}, status={"nominatedNodeName": "g1"})
    found = ask("pod/urgent", node("g1", 8), asked_pod(), urgent)
    waits = "Waiting until 2026-03-01T12:01:00Z for preempted pods on g1 to write a checkpoint: Pod team/low"
    assert (found.code, found.state) == ("WAITING_FOR_PREEMPTION", "waiting")
    assert found.headline.startswith(waits)


def test_a_job_without_pods_that_waits_for_a_checkpoint() -> None:
    low = asked_pod()
    low["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "q"}
    urgent = job("urgent", 8, "2026-03-01T11:00:00Z")
    urgent["spec"]["template"]["spec"]["priority"] = 9
    objects = [node("g1", 8), *queues(preemption={"withinClusterQueue": "LowerPriority"}), low, urgent]
    found = ask("job/urgent", *objects)
    waits = "Waiting until 2026-03-01T12:01:00Z for team/low to write a checkpoint, then for its pods to terminate"
    assert found.code == "WAITING_FOR_PREEMPTION"
    assert found.headline.startswith(waits)


def moved(pods: list[Unstructured], **move: Any) -> str:
    stamps = {"id": "x", "asked": "2026-03-01T11:00:00Z", **move}
    owner = thing("Job", "train", {"template": {"spec": pods[0]["spec"]}}, "batch/v1")
    owner["metadata"]["annotations"] = {"windlass.dev/last-move": json.dumps(stamps)}
    owner["metadata"]["uid"] = "train-uid"
    reference = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "train-uid", "controller": True}
    for member in pods:
        member["metadata"]["ownerReferences"] = [reference]
    (line,) = ask("job/train", node("g1", 8), owner, *pods).moves
    return line


def test_each_hop_of_the_last_move() -> None:
    status = {
        "phase": "Running",
        "conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-03-01T11:01:00Z"}],
        "containerStatuses": [{"name": "main", "state": {"running": {"startedAt": "2026-03-01T11:01:07Z"}}}],
    }
    line = moved(
        [pod("train-0", 1, on="g1", status=status)], answered="2026-03-01T11:00:04Z", evicted="2026-03-01T11:00:06Z"
    )
    hops = "answered 4s later, evicted 2s later, bound 54s later, started 7s later"
    assert line == f"last move: asked at 2026-03-01T11:00:00Z, {hops}"


def test_a_move_that_is_not_over() -> None:
    line = moved([pod("train-0", 1)], evicted="2026-03-01T11:01:00Z")
    assert line == "last move: asked at 2026-03-01T11:00:00Z, not answered, evicted 1m later"


def going(name: str, taint: str = "windlass.dev/leaving", value: str = "1772366700") -> Unstructured:
    found = node(name, 8)
    found["spec"]["taints"] = [{"key": taint, "value": value, "effect": "NoSchedule"}]
    return found


def test_work_that_is_asked_since_its_node_goes() -> None:
    low = asked_pod()
    request = {key: text for key, text in ASKED.items() if key != "for"} | {
        "notice": "node g1 goes: Karpenter removes it"
    }
    low["metadata"]["annotations"]["windlass.dev/ask"] = json.dumps(request)
    found = ask("pod/low", going("g1", "karpenter.sh/disrupted", ""), low)
    assert found.moves[0] == (
        "asked at 2026-03-01T11:59:00Z to write a checkpoint by 2026-03-01T12:01:00Z, "
        "since node g1 goes: Karpenter removes it"
    )


def test_work_that_is_not_asked_though_its_node_goes() -> None:
    found = ask("pod/low", going("g1"), pod("low", 8, on="g1", status={"phase": "Running"}))
    assert found.moves == (
        "node g1 goes: its administrator empties it by 2026-03-01T12:05:00Z",
        "it is not asked for a checkpoint before: only work with windlass.dev/on-preemption: ask is",
    )
