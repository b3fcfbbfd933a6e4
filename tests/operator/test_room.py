"""Before a change drains a node the engine is asked whether the work there would start elsewhere."""

from __future__ import annotations

from typing import Any

import pytest
from tests.operator.kueue_play import JOB, Kueue
from tests.operator.play import CHANGE, Play, fleet, is_up

from windlass.model.codec import decode_object
from windlass.model.configuration import Settings
from windlass.operator.observed import RoomQuestion
from windlass.operator.room import work_without_room

ONE = {"waves": [{"nodes": 1, "bake": "1m"}, {"nodes": "100%", "bake": "1m"}]}


def busy(rule: str, **change: Any) -> Play:
    """Three nodes with work, the first with the least of it; work of gpu-000 finds no other place."""
    world = fleet(3)
    play = Play(world).run(lambda: is_up(world))
    for number in range(3):
        world.add_pod(f"team/train-{number}", f"gpu-00{number}", set(range(4 + number)))
    world.room = lambda question: tuple(pod for pod in question.pods if pod == "team/train-0")
    world.reschedules = False
    world.add("FleetChange", "r590", CHANGE | ONE | {"drain": {"room": rule}} | change)
    return play


def first_taken(play: Play) -> str:
    world = play.world
    play.run(lambda: any(gpu_node.status.change for gpu_node in world.objects["GPUNode"].values()), 3600)
    return ",".join(name for name in world.nodes if world.gpu_node(name).status.change is not None)


@pytest.mark.parametrize(("rule", "expected"), [("Prefer", "gpu-001"), ("Require", "gpu-001"), ("Ignore", "gpu-000")])
def test_a_node_goes_first_whose_work_would_start_elsewhere(rule: str, expected: str) -> None:
    play = busy(rule)
    assert first_taken(play) == expected
    assert bool(play.world.questions) == (rule != "Ignore")


def test_work_that_finds_no_room_is_evicted_last_unless_room_is_required() -> None:
    play = busy("Prefer")
    assert play.until_phase("r590", "Succeeded", "Failed") == "Succeeded"
    play = busy("Require")
    world = play.world
    play.run(lambda: world.change("r590").status.reason == "NoRoom", 24 * 3600)
    status = world.change("r590").status
    assert "team/train-0 of gpu-000 would not start elsewhere" in status.message
    play.run(seconds=3 * 24 * 3600)
    assert set(world.pods) == {"team/train-0"}
    world.room = lambda question: ()
    assert play.until_phase("r590", "Succeeded", "Failed") == "Succeeded"


def test_where_room_is_required_one_node_after_the_other_is_drained() -> None:
    play = busy("Require", waves=[{"nodes": "100%", "bake": "1m"}])
    world = play.world
    world.room = lambda question: ()
    world.protected |= set(world.pods)
    play.run(seconds=600)
    taken = [name for name in world.nodes if world.gpu_node(name).status.change is not None]
    assert taken == ["gpu-000"], "the others may have found the same room"


def test_nodes_without_work_are_taken_without_asking() -> None:
    play = busy("Prefer")
    world = play.world
    for key in ("team/train-1", "team/train-2"):
        del world.pods[key]
    assert first_taken(play) == "gpu-001"
    assert not world.questions


def test_a_change_of_the_agent_asks_nothing() -> None:
    world = fleet(3)
    play = Play(world).run(lambda: is_up(world))
    for number in range(3):
        world.add_pod(f"team/train-{number}", f"gpu-00{number}", {0})
    world.room = lambda question: question.pods
    world.add("FleetChange", "a", {"stack": "h100", "agent": {"version": "2"}, **ONE})
    assert play.until_phase("a", "Succeeded", "Failed") == "Succeeded"
    assert not world.questions


def test_the_question_is_about_everything_that_would_stop() -> None:
    world = fleet(3)
    play = Play(world).run(lambda: is_up(world))
    queue = Kueue(world)
    queue.admit("team/job", JOB)
    for number in range(3):
        world.add_pod(f"team/gang-{number}", f"gpu-00{number}", {0}, gang="team/ring")
        world.add_pod(f"team/job-{number}", f"gpu-00{number}", {1}, owner_uid=JOB)
        world.add_pod(f"team/alone-{number}", f"gpu-00{number}", {2})
    world.room = lambda question: ()
    world.add("FleetChange", "r590", CHANGE | ONE)
    play.run(lambda: bool(world.questions), 600)
    question = world.questions[0]
    members = [f"team/gang-{number}" for number in range(3)]
    jobs = tuple(f"team/job-{number}" for number in range(3))
    assert question == RoomQuestion("gpu-000", ("team/job",), jobs, ("team/alone-0", *members))


# The engine's answer


def node(name: str, **spec: Any) -> dict[str, Any]:
    amounts = {"nvidia.com/gpu": "8", "cpu": "64", "memory": "512Gi", "pods": "110"}
    status = {"allocatable": amounts, "capacity": amounts, "conditions": [{"type": "Ready", "status": "True"}]}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": spec, "status": status}


def pod(name: str, where: str, gpus: int, **labels: str) -> dict[str, Any]:
    limits = {"limits": {"nvidia.com/gpu": str(gpus)}, "requests": {"nvidia.com/gpu": str(gpus)}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "team", "uid": f"uid-{name}", "labels": labels},
        "spec": {
            "nodeName": where,
            "schedulerName": "default-scheduler",
            "containers": [{"name": "c", "image": "x", "resources": limits}],
        },
        "status": {"phase": "Running"},
    }


def answer(question: RoomQuestion, *trees: dict[str, Any]) -> tuple[str, ...]:
    return work_without_room([decode_object(tree) for tree in trees], Settings(), question, 1_800_000_000)


LEAVING = RoomQuestion("a", pods=("team/p",))


@pytest.mark.parametrize(
    ("others", "expected"),
    [
        ([node("b")], ()),
        ([node("b", unschedulable=True)], ("team/p",)),
        ([node("b"), pod("q", "b", 5)], ("team/p",)),
        ([node("b"), pod("q", "b", 4)], ()),
        ([], ("team/p",)),
    ],
)
def test_a_pod_finds_room_where_the_engine_would_place_it(
    others: list[dict[str, Any]], expected: tuple[str, ...]
) -> None:
    assert answer(LEAVING, node("a"), pod("p", "a", 4), *others) == expected


def test_room_that_takes_an_eviction_is_none() -> None:
    classes = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": 10, "metadata": {"name": "high"}}
    high = pod("p", "a", 8)
    high["spec"]["priorityClassName"] = "high"
    assert answer(LEAVING, node("a"), node("b"), classes, high, pod("q", "b", 8)) == ("team/p",)


QUEUES: list[dict[str, Any]] = [
    {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": "f"}},
    {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "ClusterQueue",
        "metadata": {"name": "q"},
        "spec": {
            "namespaceSelector": {},
            "resourceGroups": [
                {
                    "coveredResources": ["nvidia.com/gpu"],
                    "flavors": [{"name": "f", "resources": [{"name": "nvidia.com/gpu", "nominalQuota": "8"}]}],
                }
            ],
        },
    },
    {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "LocalQueue",
        "metadata": {"name": "lq", "namespace": "team"},
        "spec": {"clusterQueue": "q"},
    },
    {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}},
]


@pytest.mark.parametrize(("nodes", "expected"), [(["a", "b"], ()), (["a"], ("team/w",))])
def test_admitted_work_finds_room_where_it_would_be_admitted_again(nodes: list[str], expected: tuple[str, ...]) -> None:
    template = {"spec": pod("p", "", 8)["spec"]}
    del template["spec"]["nodeName"]
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "j", "namespace": "team", "uid": "uid-j", "labels": {"kueue.x-k8s.io/queue-name": "lq"}},
        "spec": {"parallelism": 1, "completions": 1, "suspend": False, "template": template},
    }
    assignment = {
        "name": "main",
        "count": 1,
        "flavors": {"nvidia.com/gpu": "f"},
        "resourceUsage": {"nvidia.com/gpu": "8"},
    }
    conditions = [{"type": kind, "status": "True", "reason": "x"} for kind in ("QuotaReserved", "Admitted")]
    workload = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {
            "name": "w",
            "namespace": "team",
            "uid": "uid-w",
            "ownerReferences": [
                {"kind": "Job", "apiVersion": "batch/v1", "name": "j", "uid": "uid-j", "controller": True}
            ],
        },
        "spec": {"queueName": "lq", "podSets": [{"name": "main", "count": 1, "template": template}]},
        "status": {
            "admission": {"clusterQueue": "q", "podSetAssignments": [assignment]},
            "conditions": conditions,
        },
    }
    running = pod("p", "a", 8)
    running["metadata"]["ownerReferences"] = [
        {"kind": "Job", "apiVersion": "batch/v1", "name": "j", "uid": "uid-j", "controller": True}
    ]
    question = RoomQuestion("a", ("team/w",), ("team/p",))
    assert answer(question, *map(node, nodes), *QUEUES, job, workload, running) == expected
