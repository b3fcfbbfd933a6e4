"""Work that waits for others: what the engine holds it for, its place, who is ahead, and when it may start."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.diagnose.objects import GPU, NOW, ask, evidence, node, pod, thing

from windlass.cli.why_text import diagnosis_text
from windlass.diagnose.evidence import load_evidence
from windlass.diagnose.why import why
from windlass.dump.cluster_loader import load_cluster
from windlass.model.configuration import Settings
from windlass.model.unstructured import Unstructured
from windlass.planner import plan_objects

QUEUE = {"kueue.x-k8s.io/queue-name": "q"}
FULL = "2026-03-01T11:00:00Z"
ENDS = "2026-03-01T13:30:00Z"


def queues(gpus: int = 8, strategy: str = "BestEffortFIFO", **spec: Any) -> list[Unstructured]:
    amounts = {"cpu": 64, "memory": "512Gi", GPU: gpus}
    flavors = [
        {
            "name": "f",
            "resources": [{"name": key, "nominalQuota": value} for key, value in amounts.items()],
        }
    ]
    group = {"coveredResources": list(amounts), "flavors": flavors}
    version = "kueue.x-k8s.io/v1beta1"
    cluster_queue = {
        "namespaceSelector": {},
        "queueingStrategy": strategy,
        "resourceGroups": [group],
        **spec,
    }
    return [
        thing("ResourceFlavor", "f", {}, version, namespace=""),
        thing("ClusterQueue", "cq", cluster_queue, version, namespace=""),
        thing("LocalQueue", "q", {"clusterQueue": "cq"}, version),
    ]


def job(name: str, gpus: int, created: str, labels: dict[str, str] = QUEUE, **spec: Any) -> Unstructured:
    template = {"spec": pod("x", gpus)["spec"]}
    made = thing("Job", name, {"suspend": True, "template": template, **spec}, "batch/v1", labels=labels)
    made["metadata"]["creationTimestamp"] = created
    return made


def running(gpus: int, ends: bool = True) -> Unstructured:
    """Somebody who has GPUs, for two hours or without an end."""
    spec = {"activeDeadlineSeconds": 7200} if ends else {}
    busy = pod("busy", gpus, on="g1", status={"startTime": "2026-03-01T11:30:00Z"})
    busy["spec"] |= spec
    return busy


def test_a_queued_job_is_held_for_what_the_engine_holds_it_for() -> None:
    found = ask(
        "job/second",
        node("g1", 8),
        *queues(gpus=4),
        job("first", 8, "2026-03-01T09:00:00Z"),
        job("second", 4, "2026-03-01T10:00:00Z"),
        running(8),
    )
    assert found.code == "GPU_FULL"
    assert found.outlook is not None
    assert found.outlook.start == ENDS


def test_place_in_the_queue_who_is_ahead_and_when() -> None:
    found = ask(
        "job/third",
        node("g1", 8),
        *queues(),
        job("second", 8, "2026-03-01T09:00:00Z"),
        job("third", 8, "2026-03-01T10:00:00Z"),
        running(8),
    )
    assert found.is_wait
    outlook = found.outlook
    assert outlook is not None
    assert (outlook.position, outlook.queue, outlook.ahead) == (2, "cq", ("team/second",))
    said = diagnosis_text(found, wide=False)
    assert "position 2 in queue cq, behind team/second" in said
    assert max(len(line) for line in said.splitlines()) <= 80


def test_without_a_run_time_limit_there_is_no_estimate_and_the_reason_is_said() -> None:
    found = ask(
        "job/second",
        node("g1", 8),
        *queues(),
        job("second", 8, "2026-03-01T09:00:00Z"),
        running(8, ends=False),
    )
    assert found.outlook is not None
    assert found.outlook.start is None
    assert found.outlook.basis


def test_an_estimate_from_earlier_runs_says_what_it_rests_on() -> None:
    busy = running(8, ends=False)
    busy["metadata"]["labels"] = QUEUE
    week = {"from": "2026-02-26T00:00:00Z", "runs": {"3584": 42}}
    history = {**thing("RunTimeHistory", "q", {}, "windlass.dev/v1"), "periods": [week]}
    del history["spec"]
    found = ask("job/second", node("g1", 8), *queues(), job("second", 8, FULL), busy, history)
    assert found.outlook is not None
    assert found.outlook.start == "2026-03-01T12:29:44Z"
    basis = "95 % of 42 earlier runs of queue team/q ended within 59m44s"
    assert f"when team/busy ends ({basis})" in found.outlook.basis
    assert "42 earlier runs" in " ".join(diagnosis_text(found, wide=False).split())


def test_behind_the_head_of_a_strict_queue() -> None:
    found = ask(
        "job/small",
        node("g1", 8),
        *queues(strategy="StrictFIFO"),
        job("head", 8, "2026-03-01T09:00:00Z"),
        job("small", 1, "2026-03-01T10:00:00Z"),
        pod("busy", 4, on="g1"),
    )
    assert found.code == "QUEUE_BEHIND_HEAD"
    assert found.outlook is not None
    assert found.outlook.ahead == ("team/head",)


@pytest.mark.parametrize(
    ("objects", "code"),
    [
        ([*queues(gpus=2), job("asked", 4, FULL)], "KUEUE_QUOTA_INSUFFICIENT"),
        ([*queues(stopPolicy="Hold"), job("asked", 4, FULL)], "KUEUE_QUEUE_MISSING"),
        ([*queues(namespaceSelector=None), job("asked", 4, FULL)], "KUEUE_QUEUE_MISSING"),
        ([*queues(), job("asked", 4, FULL, {"kueue.x-k8s.io/queue-name": "other"})], "KUEUE_QUEUE_MISSING"),
        ([*queues(gpus=64), job("asked", 8, FULL, parallelism=2, completions=2)], "REQUEST_EXCEEDS_CLUSTER"),
    ],
)
def test_a_queue_that_would_never_admit_it(objects: list[Unstructured], code: str) -> None:
    """No condition, no event: the objects and the engine say it."""
    assert ask("job/asked", node("g1", 8), *objects).code == code


def test_room_that_goes_to_somebody_ahead_is_no_promise() -> None:
    """Two wait for one free GPU; the older gets it."""
    older, younger = pod("older", 1), pod("younger", 1)
    older["metadata"]["creationTimestamp"] = "2026-03-01T08:00:00Z"
    objects = [node("g1", 1), older, younger]
    assert ask("pod/older", *objects).code == "NONE"
    found = ask("pod/younger", *objects)
    assert found.code == "GPU_FULL"
    assert "ahead of it" in found.headline


def test_pods_that_may_not_be_seen_are_not_taken_for_absent() -> None:
    seen = evidence([node("g1", 1), pod("asked", 1)])
    seen.hidden.append("pods of other namespaces than team: not allowed")
    assert why(seen, "pod/asked", "", NOW).code == "UNKNOWN"


def test_the_scheduler_s_published_verdict_is_read_where_nodes_may_not_be_seen() -> None:
    condition = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "WaitingForQuota",
        "message": "0/4 nodes are available: the quota of its queue doesn't suffice now.",
    }
    found = ask("pod/asked", pod("asked", 1, status={"conditions": [condition]}))
    assert found.code == "KUEUE_QUOTA_INSUFFICIENT"
    plain = condition | {
        "reason": "Unschedulable",
        "message": f"0/4 nodes are available: 4 Insufficient {GPU}.",
    }
    other = ask("pod/asked", pod("asked", 1, status={"conditions": [plain]}))
    assert other.code == "UNKNOWN"
    assert any("Insufficient" in line for line in other.evidence)


def test_in_a_large_cluster_without_known_ends_only_the_order_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The place in line is the same that the whole plan gives."""
    first, second = pod("first", 1), pod("second", 1)
    second["metadata"]["creationTimestamp"] = "2026-03-01T10:30:00Z"
    objects = [node("g1", 1), running(1, ends=False), first, second, pod("no-gpu")]
    planned = ask("pod/second", *objects).outlook
    monkeypatch.setattr("windlass.diagnose.why.MANY_NODES", 0)
    quick = ask("pod/second", *objects).outlook
    assert planned is not None
    assert quick is not None
    assert (quick.position, quick.ahead) == (planned.position, planned.ahead) == (2, ("team/first",))
    assert "no run-time limit" in quick.basis
    known = [node("g1", 1), running(1), first, second]
    next_one, last = ask("pod/first", *known).outlook, ask("pod/second", *known).outlook
    assert next_one is not None
    assert last is not None
    assert next_one.start == ENDS
    assert last.start is None, "the first one has the GPU then, and nobody knows for how long"
    assert "other workloads wait ahead of it" in last.basis


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from([1, 2, 4, 8]), st.booleans()), min_size=1, max_size=5),
    st.sampled_from([2, 8, 16]),
    st.sampled_from(["StrictFIFO", "BestEffortFIFO"]),
    st.sampled_from([0, 3, 8]),
)
def test_why_and_the_scheduler_do_not_disagree_about_queued_work(
    wishes: list[tuple[int, bool]], quota: int, strategy: str, used: int
) -> None:
    """Whatever the engine holds has its code, its place and its people ahead; what it admits has no cause."""
    objects: list[Unstructured] = [node("g1", 8), *queues(quota, strategy)]
    objects += [pod("busy", used, on="g1")] if used else []
    names = [f"job-{number}" for number in range(len(wishes))]
    for number, (gpus, _) in enumerate(wishes):
        objects.append(job(names[number], gpus, f"2026-03-01T09:{number:02}:00Z"))
    known = evidence(objects)
    plan, _ = plan_objects(known.objects, Settings(), NOW)
    holds = {hold.workload: hold.verdict for hold in plan.holds}
    for name in names:
        found = why(known, f"job/{name}", "", NOW)
        verdict = holds.get(f"team/{name}")
        if verdict is None:
            assert found.code == "UNKNOWN", found
            assert "would" in found.headline
            continue
        assert found.code == verdict.code, found
        if found.outlook is not None and found.outlook.queue:
            assert found.outlook.position == verdict.ahead + 1
            assert len(found.outlook.ahead) == verdict.ahead


def test_plan_and_why_name_the_same_cause_of_the_example() -> None:
    """The only node with GPUs is tainted. The other one lacks GPUs, has none and never will."""
    file = Path(__file__).parents[2] / "examples" / "stuck.yaml"
    plan, _ = plan_objects(load_cluster(file).objects, Settings(), NOW)
    (hold,) = plan.holds
    diagnosis = why(load_evidence(file), "pod/train-0", "", NOW)
    assert hold.verdict.code == diagnosis.code == diagnosis.chain[0].code == "TAINT_NOT_TOLERATED"
    assert diagnosis.confidence == "high"
    assert hold.verdict.message.startswith(diagnosis.chain[0].message.removesuffix("."))


def test_the_chain_goes_from_what_the_engine_says_to_what_stands_behind_it() -> None:
    """The engine sees that a node's CPU is used up; whose pods use it is no matter to it."""
    objects = [node("g1", 8, cpu="8"), pod("web", on="g1", cpu="7"), pod("asked", 1, cpu="4")]
    diagnosis = ask("pod/asked", *objects)
    assert [link.code for link in diagnosis.chain] == ["CPU_MEM_INSUFFICIENT", "GPU_STRANDED"]
    assert diagnosis.code == "GPU_STRANDED"


def test_what_may_not_be_seen_lowers_the_confidence() -> None:
    found = evidence([node("g1", 1), pod("runs", 1, on="g1"), pod("asked", 1)])
    assert why(found, "pod/asked", "", NOW).confidence == "high"
    found.hidden.append("events: not allowed")
    assert why(found, "pod/asked", "", NOW).confidence == "low"
