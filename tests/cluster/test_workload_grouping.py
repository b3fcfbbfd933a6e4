"""Which pods are one workload, what it requests and what it uses, for every kind that defines workloads."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.model.kueue_samples import (
    ADMITTED,
    CLUSTER_QUEUE,
    FLAVOR,
    LOCAL_QUEUE,
    TOPOLOGY,
    WORKLOAD,
    changed,
)
from tests.model.owner_samples import (
    COSCHEDULING,
    DEPLOYMENT,
    JOB,
    JOB_SET,
    LEADER_WORKER_SET,
    LIMIT_RANGE,
    NATIVE,
    POD_SPEC,
    PYTORCH_JOB,
    RESOURCE_QUOTA,
    TRAIN_JOB,
    VOLCANO,
)

from windlass.cluster.workloads import Grouping, GroupingInputs, group_workloads, grouping_inputs
from windlass.cluster.workloads.build_workload import build_workload
from windlass.cluster.workloads.pod_sets import pod_sets_of_group
from windlass.cluster.workloads.units import Unit, UnitKey
from windlass.model.codec import decode_object
from windlass.model.pod import Pod
from windlass.model.times import parse_timestamp
from windlass.model.unstructured import Unstructured
from windlass.model.workload import TopologyRequest, Workload

NOW = parse_timestamp("2026-01-02T00:00:00Z")
QUEUES = (CLUSTER_QUEUE, LOCAL_QUEUE, FLAVOR, TOPOLOGY)
NODE: Unstructured = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "n1", "labels": {"pool": "h100", "nvidia.com/gpu.memory": "40000"}},
}


def pod(
    name: str, *, node: str = "", phase: str = "", spec: Unstructured | None = None, **metadata: Any
) -> Unstructured:
    made = {"name": name, "namespace": "eng", "uid": f"u-{name}", "creationTimestamp": "2026-01-01T00:00:00Z"}
    status = {"phase": phase or ("Running" if node else "Pending")}
    if node:
        status["startTime"] = "2026-01-01T06:00:00Z"
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**made, **metadata},
        "spec": {**POD_SPEC, **(spec or {}), **({"nodeName": node} if node else {})},
        "status": status,
    }


def grouped(*trees: Unstructured) -> Grouping:
    return group_workloads(grouping_inputs([decode_object(copy.deepcopy(tree)) for tree in trees], NOW))


def only(*trees: Unstructured) -> Workload:
    [workload] = grouped(*trees).workloads
    return workload


def owned_by(tree: Unstructured) -> list[Unstructured]:
    name = tree["metadata"]["name"]
    return [{"apiVersion": tree["apiVersion"], "kind": tree["kind"], "name": name, "controller": True}]


COSCHEDULED = {"scheduling.x-k8s.io/pod-group": "gang", "kueue.x-k8s.io/queue-name": "main"}


def test_a_pod_without_an_owner_is_a_workload_of_its_own_name() -> None:
    workload = only(pod("a", spec={"priority": 5}))
    assert (workload.key, workload.kind, workload.queue_name, workload.priority) == ("eng/a", "Pod", "", 5)
    assert workload.created == parse_timestamp("2026-01-01T00:00:00Z")
    assert [(pod_set.count, pod_set.pod_keys) for pod_set in workload.pod_sets] == [(1, ("eng/a",))]


@pytest.mark.parametrize(
    ("tree", "mark", "minimum"),
    [
        (COSCHEDULING, {"labels": COSCHEDULED}, 2),
        (COSCHEDULING, {"labels": {"pod-group.scheduling.sigs.k8s.io": "gang"}}, 2),
        (VOLCANO, {"annotations": {"scheduling.k8s.io/group-name": "gang"}}, 4),
        (VOLCANO, {"annotations": {"scheduling.volcano.sh/group-name": "gang"}}, 4),
        (NATIVE, {"spec": {"schedulingGroup": {"podGroupName": "gang"}}}, 3),
    ],
)
def test_pods_of_a_group_are_one_workload(tree: Unstructured, mark: dict[str, Any], minimum: int) -> None:
    pods = [pod(f"p{number}", **mark) for number in range(5)]
    workload = only(tree, *QUEUES, *pods)
    assert (workload.key, workload.kind, workload.min_pods) == ("eng/gang", "PodGroup", minimum)
    assert [pod_set.count for pod_set in workload.pod_sets] == [5]
    assert workload.uid == "u-gang"
    assert workload.hold_code == ("NOT_IMPLEMENTED" if tree is VOLCANO else "")  # 5 pods, 4 by task minimums


def test_a_native_group_brings_topology_priority_and_policy() -> None:
    member = {"spec": {"schedulingGroup": {"podGroupName": "gang"}}}
    workload = only(NATIVE, *(pod(f"p{number}", **member) for number in range(3)))
    assert workload.pod_sets[0].topology == TopologyRequest("required", "example.com/rack", spans_pod_sets=True)
    assert (workload.priority, workload.preemption_policy) == (11, "Never")


def test_a_group_that_lacks_members_waits_for_them() -> None:
    workload = only(COSCHEDULING, *QUEUES, pod("p0", labels=COSCHEDULED))
    assert workload.hold_code == "GANG_INCOMPLETE"
    assert workload.hold == "1 of at least 2 pods of PodGroup eng/gang exist"


def test_a_group_without_its_object_waits_for_it() -> None:
    workload = only(pod("p0", labels=COSCHEDULED), *QUEUES)
    assert (workload.hold_code, workload.key) == ("GANG_INCOMPLETE", "eng/gang")


def test_members_that_are_done_count_and_failed_ones_do_not() -> None:
    done = pod("done", node="n1", phase="Succeeded", labels=COSCHEDULED)
    failed = pod("failed", node="n1", phase="Failed", labels=COSCHEDULED)
    running = pod("p0", node="n1", labels=COSCHEDULED)
    workload = only(COSCHEDULING, NODE, *QUEUES, done, running)
    assert (workload.min_pods, workload.pod_sets[0].pod_keys) == (1, ("eng/p0",))
    assert only(COSCHEDULING, NODE, *QUEUES, failed, running).min_pods == 2


def test_a_kueue_group_waits_for_all_it_announced() -> None:
    marks = {
        "labels": {"kueue.x-k8s.io/pod-group-name": "g", "kueue.x-k8s.io/queue-name": "main"},
        "annotations": {"kueue.x-k8s.io/pod-group-total-count": "2"},
    }
    assert only(*QUEUES, pod("a", **marks)).hold_code == "GANG_INCOMPLETE"
    workload = only(*QUEUES, pod("a", **marks), pod("b", **marks))
    assert (workload.hold, workload.min_pods, workload.queue_name) == ("", 2, "main")


def kueue_member(name: str, total: str | None, **more: Any) -> Unstructured:
    labels = {"kueue.x-k8s.io/pod-group-name": "g", "kueue.x-k8s.io/queue-name": "main"}
    notes = {} if total is None else {"kueue.x-k8s.io/pod-group-total-count": total}
    return pod(name, labels=labels, annotations=notes, **more)


@pytest.mark.parametrize("total", [None, "", "0", "two"])
def test_a_kueue_group_without_a_size_that_can_be_read_waits_and_says_so(total: str | None) -> None:
    workload = only(*QUEUES, kueue_member("a", total), kueue_member("b", total))
    assert (workload.hold_code, workload.key) == ("INVALID_OBJECT", "eng/g")
    assert workload.hold.startswith("metadata.annotations.kueue.x-k8s.io/pod-group-total-count of eng/a is ")
    assert "set it on every pod" in workload.hold
    running = only(*QUEUES, NODE, kueue_member("a", total, node="n1"), kueue_member("b", total))
    assert (running.hold, running.min_pods) == ("", 2), "what runs is not stopped for that"


def test_the_youngest_pods_that_a_kueue_group_did_not_announce_wait() -> None:
    """As Kueue, which deletes them: of those that don't run, the youngest."""
    ages = {"a": 3, "b": 1, "c": 4, "d": 2}
    pods = [kueue_member(name, "2", creationTimestamp=f"2026-01-01T00:00:0{age}Z") for name, age in ages.items()]
    gang, *others = grouped(*QUEUES, *pods).workloads
    assert (gang.hold, gang.min_pods, gang.pod_sets[0].pod_keys) == ("", 2, ("eng/b", "eng/d"))
    assert [(other.key, other.kind, other.hold_code) for other in others] == [
        ("eng/a", "Pod", "INVALID_OBJECT"),
        ("eng/c", "Pod", "INVALID_OBJECT"),
    ]
    assert "group g has 4 pods; delete this pod" in others[0].hold


def test_what_runs_is_never_too_much_for_its_kueue_group() -> None:
    placed = [kueue_member(name, "1", node="n1") for name in ("a", "b")]
    other, gang = grouped(*QUEUES, NODE, *placed, kueue_member("0", "1")).workloads
    assert gang.pod_sets[0].pod_keys == ("eng/a", "eng/b")
    assert (other.key, other.hold_code) == ("eng/0", "INVALID_OBJECT")
    done = kueue_member("done", "1", node="n1", phase="Succeeded")
    late = only(*QUEUES, NODE, done, kueue_member("late", "1"))
    assert (late.key, late.hold_code) == ("eng/late", "INVALID_OBJECT")


def test_groups_of_one_name_have_different_keys() -> None:
    """Three groups of one name: one for each scheduler whose form the pods use."""
    marks: list[dict[str, Any]] = [
        {"labels": {"scheduling.x-k8s.io/pod-group": "gang"}},
        {"annotations": {"scheduling.k8s.io/group-name": "gang"}},
        {"spec": {"schedulingGroup": {"podGroupName": "gang"}}},
    ]
    made = grouped(*(pod(f"p{number}", **mark) for number, mark in enumerate(marks))).workloads
    assert [workload.key for workload in made] == [
        "eng/gang",
        "eng/gang.podgroup.scheduling.volcano.sh",
        "eng/gang.podgroup.scheduling.x-k8s.io",
    ]
    two = grouped(*(pod(f"p{number}", **mark) for number, mark in enumerate(marks[:2]))).workloads
    assert [workload.key for workload in two] == ["eng/gang", "eng/gang.podgroup"]


def test_a_source_that_nobody_reads_is_not_taken_for_a_pod_group() -> None:
    unit = Unit(UnitKey("example.com", "eng/gang", "PodGroup"), [Pod()])  # type: ignore[arg-type]
    with pytest.raises(AssertionError, match=r"example\.com"):
        build_workload(unit, GroupingInputs())


def test_pods_of_different_shape_are_different_sets() -> None:
    leader = pod("leader", labels={**COSCHEDULED, "volcano.sh/task-spec": "ps"}, spec={"containers": []})
    workers = [pod(f"w{n}", labels={**COSCHEDULED, "volcano.sh/task-spec": "worker"}) for n in range(2)]
    workload = only(COSCHEDULING, *QUEUES, leader, *workers)
    assert {pod_set.name: pod_set.pod_keys for pod_set in workload.pod_sets} == {
        "ps": ("eng/leader",),
        "worker": ("eng/w0", "eng/w1"),
    }


def test_placed_pods_come_first_and_make_the_admission() -> None:
    share = {"gpu-memory": "10000"}
    plain = {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}
    marks: dict[str, Any] = {"labels": COSCHEDULED, "annotations": share, "spec": plain}
    workload = only(
        COSCHEDULING, NODE, *QUEUES, pod("p0", **marks), *(pod(f"p{n}", node="n1", **marks) for n in (1, 2))
    )
    assert workload.pod_sets[0].pod_keys == ("eng/p1", "eng/p2", "eng/p0")
    assert workload.pod_sets[0].template.spec.node_name == ""
    assert workload.admission is not None
    assert workload.admission.cluster_queue == "team-a"
    assert workload.admission.reserved_at == workload.started_at == parse_timestamp("2026-01-01T06:00:00Z")
    [held] = workload.admission.assignments
    assert held.nodes == {"n1": 2}
    assert held.flavors == {"cpu": "h100", "nvidia.com/gpu": "h100"}
    assert (held.usage["nvidia.com/gpu"], held.usage["cpu"]) == (500, 2000)


def test_pods_on_nodes_of_two_flavors_hold_both() -> None:
    spot = changed(changed(FLAVOR, "metadata/name", "spot"), "spec/nodeLabels", {"pool": "spot"})
    quotas = CLUSTER_QUEUE["spec"]["resourceGroups"][0]["flavors"][0]
    both = changed(CLUSTER_QUEUE, "spec/resourceGroups/0/flavors", [quotas, {**quotas, "name": "spot"}])
    other = changed(changed(NODE, "metadata/name", "n2"), "metadata/labels", {"pool": "spot"})
    pods = [pod("p1", node="n1", labels=COSCHEDULED), pod("p2", node="n2", labels=COSCHEDULED)]
    workload = only(COSCHEDULING, both, spot, FLAVOR, TOPOLOGY, LOCAL_QUEUE, NODE, other, *pods)
    assert workload.admission is not None
    assert {assignment.flavors["cpu"]: assignment.nodes for assignment in workload.admission.assignments} == {
        "h100": {"n1": 1},
        "spot": {"n2": 1},
    }


def test_what_is_being_deleted_is_no_member_unless_nothing_else_is_left() -> None:
    leaving = {"labels": COSCHEDULED, "deletionTimestamp": "2026-01-01T07:00:00Z"}
    staying = pod("p0", node="n1", labels=COSCHEDULED)
    both = grouped(COSCHEDULING, NODE, *QUEUES, staying, pod("p1", node="n1", **leaving)).workloads
    assert [(workload.key, workload.pod_sets[0].pod_keys, workload.evicting) for workload in both] == [
        ("eng/gang", ("eng/p0",), False),
        ("eng/gang#leaving", ("eng/p1",), True),
    ]
    assert all(workload.admission is not None for workload in both), "it holds quota until it is gone"
    gone = only(COSCHEDULING, NODE, *QUEUES, pod("p1", node="n1", **leaving))
    assert gone.evicting
    assert gone.admission is not None


def test_a_queue_that_is_missing_holds_what_waits() -> None:
    labels = {"kueue.x-k8s.io/queue-name": "nowhere"}
    assert only(*QUEUES, pod("a", labels=labels)).hold_code == "KUEUE_QUEUE_MISSING"
    assert only(*QUEUES, NODE, pod("a", node="n1", labels=labels)).hold == ""


def test_kueues_own_gates_are_not_in_the_template() -> None:
    gates = {"schedulingGates": [{"name": "kueue.x-k8s.io/admission"}, {"name": "example.com/wait"}]}
    workload = only(*QUEUES, pod("a", spec=gates, labels={"kueue.x-k8s.io/queue-name": "main"}))
    assert [gate.name for gate in workload.pod_sets[0].template.spec.scheduling_gates] == ["example.com/wait"]


def test_a_queued_job_is_one_workload_with_or_without_pods() -> None:
    waiting = only(JOB, *QUEUES)
    assert (waiting.key, waiting.kind, waiting.queue_name) == ("eng/train", "Job", "main")
    assert (waiting.pod_sets[0].count, waiting.pod_sets[0].min_count) == (4, 2)
    assert waiting.max_run_seconds == 600
    pods = [pod(f"p{n}", ownerReferences=owned_by(JOB)) for n in range(2)]
    started = only(JOB, *QUEUES, *pods)
    assert (started.pod_sets[0].count, started.pod_sets[0].pod_keys) == (4, ("eng/p0", "eng/p1"))


def test_queued_work_waits_for_whoever_gates_its_admission() -> None:
    """By the annotation of the Job, which Kueue copies to the Workload."""
    gate = {"kueue.x-k8s.io/admission-gated-by": "example.com/budget"}
    for trees in ([JOB], [changed(WORKLOAD, "metadata/annotations", gate), changed(JOB, "metadata/name", "train-job")]):
        assert only(*trees, *QUEUES).hold == "", "nor a copy that is left"
        gated = only(*trees[:-1], changed(trees[-1], "metadata/annotations", gate), *QUEUES)
        assert gated.hold_code == "SCHEDULING_GATED"
        assert "example.com/budget" in gated.hold
    assert only(changed(WORKLOAD, "metadata/annotations", gate), *QUEUES).hold_code == "SCHEDULING_GATED"
    alone = changed(changed(JOB, "metadata/annotations", gate), "metadata/labels", {})
    assert all(not workload.hold for workload in grouped(alone, pod("p", ownerReferences=owned_by(alone))).workloads)


def test_pods_of_a_job_in_no_queue_stand_alone() -> None:
    job = changed(JOB, "metadata/labels", {})
    pods = [pod(f"p{n}", ownerReferences=owned_by(JOB)) for n in range(2)]
    assert [workload.kind for workload in grouped(job, *pods).workloads] == ["Pod", "Pod"]
    assert grouped(job).workloads == ()


def test_a_workload_and_the_job_that_owns_it_are_one() -> None:
    job = changed(JOB, "metadata/name", "train-job")
    pods = [pod(f"p{n}", ownerReferences=owned_by(job)) for n in range(2)]
    workload = only(WORKLOAD, job, *QUEUES, *pods)
    assert (workload.key, workload.kind, workload.owner) == ("eng/train", "Workload", "Job eng/train-job")
    assert workload.pod_sets[0].pod_keys == ("eng/p0", "eng/p1")
    assert only(WORKLOAD, job, *QUEUES).pod_sets[0].pod_keys == ()


def test_a_workload_that_is_finished_waits_no_more_though_its_pods_are_still_there() -> None:
    job = changed(JOB, "metadata/name", "train-job")
    ended = [pod(f"p{n}", node="n", phase="Succeeded", ownerReferences=owned_by(job)) for n in range(2)]
    finished = changed(WORKLOAD, "status/conditions", [{"type": "Finished", "status": "True", "reason": "Succeeded"}])
    assert not grouped(finished, job, *QUEUES, *ended).workloads
    leaving = pod("p2", node="n", ownerReferences=owned_by(job), deletionTimestamp="2026-01-01T07:00:00Z")
    assert only(finished, job, *QUEUES, *ended, leaving).pod_sets[0].pod_keys == ("eng/p2",)


def test_what_people_write_on_the_job_counts_beside_its_workload() -> None:
    notes = {
        "volcano.sh/preemptable": "false",
        "windlass.dev/last-checkpoint": "2026-01-01T00:10:00Z",
        "windlass.dev/restart-cost": "5m",
    }
    job = changed(changed(JOB, "metadata/name", "train-job"), "metadata/annotations", notes)
    for trees in ([WORKLOAD, job], [job]):
        workload = only(*trees, *QUEUES)
        assert not workload.evictable
        assert workload.checkpoint_at == parse_timestamp("2026-01-01T00:10:00Z")
        assert workload.restart_seconds == 300
    assert only(WORKLOAD, changed(JOB, "metadata/name", "train-job"), *QUEUES).evictable


def test_a_job_set_knows_its_pods_by_label() -> None:
    marks = [
        pod(f"p{n}", labels={"jobset.sigs.k8s.io/replicatedjob-name": name}, ownerReferences=owned_by(JOB_SET))
        for n, name in enumerate(["workers", "leader", "workers"])
    ]
    sets = {pod_set.name: pod_set.pod_keys for pod_set in only(JOB_SET, *QUEUES, *marks).pod_sets}
    assert sets == {"leader": ("eng/p1",), "workers": ("eng/p0", "eng/p2")}


def test_the_topmost_owner_is_the_workload() -> None:
    below = changed(JOB_SET, "metadata/ownerReferences", owned_by(TRAIN_JOB))
    job = changed(changed(JOB, "metadata/name", "train-workers-0"), "metadata/ownerReferences", owned_by(JOB_SET))
    workload = only(TRAIN_JOB, below, job, *QUEUES, pod("p0", ownerReferences=owned_by(job)))
    assert (workload.key, workload.kind) == ("eng/train", "TrainJob")
    assert [(pod_set.name, pod_set.count) for pod_set in workload.pod_sets] == [("leader", 1), ("workers", 8)]


def test_a_train_job_has_nothing_of_the_job_set_of_its_predecessor() -> None:
    """Until its controller has made its own: a TrainJob that is made anew may find the old one for a while."""
    anew = changed(changed(TRAIN_JOB, "metadata/uid", "new"), "metadata/creationTimestamp", "2026-01-01T00:00:00Z")
    for uid, sets in (("old", ["main"]), ("new", ["leader", "workers"])):
        below = changed(JOB_SET, "metadata/ownerReferences", [{**owned_by(TRAIN_JOB)[0], "uid": uid}])
        workload = only(anew, below, *QUEUES)
        assert [pod_set.name for pod_set in workload.pod_sets] == sets
        assert bool(workload.hold) == (uid == "old")


def test_training_pods_are_one_also_where_the_owner_is_not_at_hand() -> None:
    pods = [pod(f"p{n}", ownerReferences=owned_by(PYTORCH_JOB)) for n in range(2)]
    workload = only(*pods)
    assert (workload.key, workload.kind, workload.pod_sets[0].count) == ("eng/train", "PyTorchJob", 2)


def test_each_gang_of_a_leader_worker_set_is_a_workload() -> None:
    label = {"leaderworkerset.sigs.k8s.io/group-index": "1", "leaderworkerset.sigs.k8s.io/worker-index": "0"}
    workloads = grouped(
        LEADER_WORKER_SET, pod("p", labels=label, ownerReferences=owned_by(LEADER_WORKER_SET))
    ).workloads
    assert [workload.key for workload in workloads] == ["eng/train-0", "eng/train-1"]
    assert [pod_set.pod_keys for pod_set in workloads[1].pod_sets] == [("eng/p",), ()]


def test_a_leader_worker_sets_pods_are_its_own_though_stateful_sets_make_them() -> None:
    """Its controller lets one StatefulSet make the leaders, and one for each leader the workers."""
    name = LEADER_WORKER_SET["metadata"]["name"]

    def member(worker: int, made_by: str) -> Unstructured:
        labels = {
            "leaderworkerset.sigs.k8s.io/name": name,
            "leaderworkerset.sigs.k8s.io/group-index": "0",
            "leaderworkerset.sigs.k8s.io/worker-index": str(worker),
        }
        reference = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": made_by, "controller": True}
        return pod(f"{made_by}-{worker}", labels=labels, ownerReferences=[reference])

    workloads = grouped(LEADER_WORKER_SET, member(0, name), member(1, f"{name}-0")).workloads
    assert [workload.key for workload in workloads] == ["eng/train-0", "eng/train-1"]
    assert [pod_set.pod_keys for pod_set in workloads[0].pod_sets] == [("eng/train-0",), ("eng/train-0-1",)]


def test_an_owner_of_an_unknown_kind_is_said_to_be_ungrouped() -> None:
    owner = [{"apiVersion": "example.com/v1", "kind": "Sweep", "name": "s", "controller": True}]
    made = grouped(*(pod(f"p{n}", ownerReferences=owner) for n in range(2)))
    assert [workload.kind for workload in made.workloads] == ["Pod", "Pod"]
    assert "Sweep eng/s" in made.notes[0]
    assert "kueue.x-k8s.io/pod-group-name" in made.notes[0]
    assert "kueue.x-k8s.io/pod-group-total-count" in made.notes[0]
    assert grouped(pod("p0", ownerReferences=owner)).notes == ()


def test_an_unknown_owner_with_a_group_is_grouped() -> None:
    owner = [{"apiVersion": "example.com/v1", "kind": "Sweep", "name": "s", "controller": True}]
    pods = [pod(f"p{n}", ownerReferences=owner, labels=COSCHEDULED) for n in range(2)]
    made = grouped(COSCHEDULING, *QUEUES, *pods)
    assert [workload.key for workload in made.workloads] == ["eng/gang"]
    assert made.notes == ()


def test_the_pods_of_a_deployment_have_nothing_to_do_with_one_another() -> None:
    fresh = changed(changed(DEPLOYMENT, "metadata/uid", None), "metadata/creationTimestamp", None)
    workload = only(fresh)
    assert (workload.min_pods, workload.all_or_nothing, workload.created) == (1, False, NOW)
    assert grouped(DEPLOYMENT).workloads == ()


def test_a_suspended_job_in_no_queue_is_its_owners_business() -> None:
    job = changed(changed(JOB, "metadata/labels", {}), "metadata/uid", None)
    assert only(changed(job, "metadata/creationTimestamp", None)).hold_code == "JOB_SUSPENDED"


def test_a_workload_that_breaks_a_limit_range_waits() -> None:
    workload = only(WORKLOAD, LIMIT_RANGE, *QUEUES)
    assert workload.hold_code == "POLICY_DENIED"
    assert "LimitRange train" in workload.hold


def test_the_namespaces_quota_counts_for_what_is_not_submitted() -> None:
    def fresh(name: str) -> Unstructured:
        made = pod(name)
        del made["metadata"]["uid"], made["metadata"]["creationTimestamp"]
        return made

    holds = {
        workload.key: workload.hold_code
        for workload in grouped(RESOURCE_QUOTA, fresh("a"), fresh("b"), pod("c")).workloads
    }
    assert holds == {"eng/a": "", "eng/b": "RESOURCE_QUOTA_EXCEEDED", "eng/c": ""}


def test_the_namespaces_quota_counts_for_what_waits_in_a_queue_without_pods() -> None:
    tight = changed(RESOURCE_QUOTA, "spec/hard", {"requests.nvidia.com/gpu": "0"})
    waiting = only(WORKLOAD, tight, *QUEUES)
    assert waiting.hold_code == "RESOURCE_QUOTA_EXCEEDED"
    assert "exceeded quota" in waiting.hold
    assert only(ADMITTED, tight, *QUEUES).hold_code == "", "what was admitted is not taken back"


def test_the_namespaces_quota_counts_no_shares_of_gpus() -> None:
    """As in the API server, which knows nothing of the annotation."""
    spent = changed(RESOURCE_QUOTA, "status/used", {"requests.nvidia.com/gpu": "8"})
    share = pod("a", spec={"containers": [{"name": "main"}]}, annotations={"gpu-fraction": "0.5"})
    del share["metadata"]["uid"], share["metadata"]["creationTimestamp"]
    assert only(spent, share).hold_code == ""


@pytest.mark.parametrize("tree", [RESOURCE_QUOTA, LIMIT_RANGE], ids=lambda tree: str(tree["kind"]))
def test_of_two_rules_that_forbid_the_same_the_first_by_name_is_named(tree: Unstructured) -> None:
    rules = [changed(changed(tree, "metadata/name", name), "metadata/uid", name) for name in "ab"]
    if tree is RESOURCE_QUOTA:
        rules = [changed(rule, "spec/hard", {"requests.nvidia.com/gpu": "0"}) for rule in rules]
    holds = {only(WORKLOAD, *order, *QUEUES).hold for order in (rules, rules[::-1])}
    (hold,) = holds
    assert (" a, " if tree is RESOURCE_QUOTA else "LimitRange a:") in hold


def test_priority_classes_of_both_kinds() -> None:
    wpc: Unstructured = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "WorkloadPriorityClass",
        "metadata": {"name": "urgent"},
        "value": 900,
    }
    assert only(wpc, pod("a", labels={"kueue.x-k8s.io/priority-class": "urgent"}, spec={"priority": 5})).priority == 900
    assert only(pod("a", spec={"priorityClassName": "system-node-critical"})).priority == 2_000_001_000


def test_run_limits_and_checkpoints() -> None:
    marks = {"windlass.dev/duration": "1h", "windlass.dev/last-checkpoint": "2026-01-01T05:00:00Z"}
    workload = only(pod("a", annotations=marks, spec={"activeDeadlineSeconds": 60}))
    assert workload.max_run_seconds == 60
    assert workload.checkpoint_at == parse_timestamp("2026-01-01T05:00:00Z")
    assert only(pod("a", annotations={"windlass.dev/duration": "soon"})).max_run_seconds is None


def test_what_starting_again_costs_is_declared() -> None:
    assert only(pod("a")).restart_seconds is None
    assert only(pod("a", annotations={"windlass.dev/restart-cost": "20m"})).restart_seconds == 1200
    assert only(pod("a", annotations={"windlass.dev/restart-cost": "long"})).restart_seconds is None


def test_work_that_is_not_to_be_preempted() -> None:
    assert only(pod("a")).evictable
    assert not only(pod("a", annotations={"volcano.sh/preemptable": "false"})).evictable


QUEUED_POD = pod("a", labels={"kueue.x-k8s.io/queue-name": "main"})


@pytest.mark.parametrize("tree", [QUEUED_POD, changed(JOB, "spec/suspend", False)], ids=["Pod", "Job"])
def test_a_topology_that_cannot_be_read_holds_it(tree: Unstructured) -> None:
    marks = {"kueue.x-k8s.io/podset-slice-required-topology": "rack"}
    workload = only(changed(tree, "metadata/annotations", marks), *QUEUES)
    assert workload.hold_code == "INVALID_OBJECT"
    assert workload.hold.startswith("metadata.annotations")


def test_a_topology_assignment_names_nodes_by_their_hostname_label() -> None:
    node = changed(NODE, "metadata/labels", {"kubernetes.io/hostname": "x1-a"})
    admission = only(ADMITTED, node, *QUEUES).admission
    assert admission is not None
    assert admission.assignments[0].nodes == {"n1": 3, "x2-a": 1}


@given(st.permutations(range(9)), st.data())
def test_the_order_of_objects_changes_nothing(order: list[int], data: st.DataObject) -> None:
    nodes = st.sampled_from(["", "n1"])
    pods = [pod(f"p{n}", node=data.draw(nodes), labels=COSCHEDULED) for n in range(3)]
    trees = [COSCHEDULING, NODE, *QUEUES, *pods]
    assert grouped(*(trees[at] for at in order)) == grouped(*trees)


@given(st.lists(st.tuples(st.sampled_from(["", "gang", "g"]), st.sampled_from(["", "n1"])), max_size=8))
def test_every_pod_is_in_exactly_one_workload(members: list[tuple[str, str]]) -> None:
    pods = [
        pod(f"p{n}", node=node, labels={"scheduling.x-k8s.io/pod-group": name} if name else {})
        for n, (name, node) in enumerate(members)
    ]
    workloads = grouped(COSCHEDULING, NODE, *pods).workloads
    listed = sorted(key for workload in workloads for pod_set in workload.pod_sets for key in pod_set.pod_keys)
    assert listed == sorted(f"eng/p{n}" for n in range(len(members)))
    placed = sum(
        held.count
        for workload in workloads
        if workload.admission is not None
        for held in workload.admission.assignments
    )
    assert placed == sum(1 for _, node in members if node)


def test_members_with_different_strategies_are_different_sets() -> None:
    """All pods of a set are placed as its first pod is."""
    notes = ({"windlass.dev/placement": "pack"}, {"windlass.dev/placement": "spread"})
    pods = [decode_object(pod(f"p{number}", annotations=note)) for number, note in enumerate(notes)]
    alike = [decode_object(pod(name)) for name in ("a", "b")]
    assert [len(pod_set.pod_keys) for pod_set in pod_sets_of_group(pods, None)] == [1, 1]
    assert [len(pod_set.pod_keys) for pod_set in pod_sets_of_group(alike, None)] == [2]
