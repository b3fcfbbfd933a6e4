"""Representative work on the nodes of a canary: before they go back into service, and beside control nodes."""

from __future__ import annotations

import random
from typing import Any

import pytest
from tests.operator.play import CHANGE, Play, fleet, is_up
from tests.operator.world import World

from windlass.model.convert import convert
from windlass.model.errors import InputError
from windlass.model.names.windlass import CHANGE_TAINT
from windlass.operator.cache import OperatorCache, observed_object
from windlass.operator.canary_jobs import JobWire, canary_job, job_body
from windlass.operator.kinds.codec import decode_operator_object
from windlass.operator.kinds.fleet_change import CanaryWork

TEMPLATE = {
    "metadata": {"labels": {"team": "ml"}},
    "spec": {
        "template": {
            "metadata": {"labels": {"app": "bench"}},
            "spec": {
                "nodeSelector": {"zone": "a"},
                "tolerations": [{"key": "gpu"}],
                "containers": [{"name": "c", "image": "bench:1"}],
            },
        }
    },
}
BROKEN = "590.44.01"


def started(world: World, kills: int = 0, **work: Any) -> Play:
    chance = random.Random(kills)
    play = Play(world, kill=lambda number: kills > 0 and chance.random() < 0.2).run(lambda: is_up(world))
    canary = {"work": {"jobTemplate": TEMPLATE, **work}}
    world.add("FleetChange", "r590", CHANGE | {"canary": canary})
    return play


def ended(play: Play, seconds: int = 24 * 3600) -> str:
    return play.until_phase("r590", "Succeeded", "RolledBack", "Failed", seconds=seconds)


@pytest.mark.parametrize("kills", range(3))
def test_nodes_of_the_canary_and_no_others_do_the_work(kills: int) -> None:
    world = fleet()
    play = started(world, kills)
    assert ended(play) == "Succeeded"
    assert len(world.jobs) == 2
    assert all(world.nodes[job.node].loaded == BROKEN for job in world.jobs.values())


def test_a_node_stays_closed_until_its_work_is_done() -> None:
    world = fleet()
    play = started(world)
    play.run(lambda: bool(world.jobs), 3600)
    (job, *_) = world.jobs.values()
    record = world.gpu_node(job.node).status.change
    assert record is not None
    play.run(seconds=30)
    record = world.gpu_node(job.node).status.change
    assert record is not None
    assert (record.reason, record.result) == ("CanaryWork", "")
    assert record.message.startswith("Job windlass-canary/r590-")
    assert CHANGE_TAINT in {taint.key for taint in world.nodes[job.node].taints}


def test_work_that_fails_takes_the_change_back() -> None:
    world = fleet()
    world.job_ends = lambda world, node: ("Failed", 30)
    play = started(world)
    assert ended(play) == "RolledBack"
    assert "canary work: exit code 1" in world.change("r590").status.message
    assert {node.loaded for node in world.nodes.values()} == {"580.95.05"}


def test_work_that_never_ends_takes_the_change_back_and_is_deleted() -> None:
    world = fleet()
    world.job_ends = lambda world, node: ("", 0)
    play = started(world, timeout="10m")
    assert ended(play, 2 * 3600) == "RolledBack"
    assert "canary work was not done in 10m" in world.change("r590").status.message
    assert not world.jobs


def test_slower_work_than_on_control_nodes_takes_the_change_back() -> None:
    world = fleet()
    world.job_ends = lambda world, node: ("Succeeded", 90 if world.nodes[node].loaded == BROKEN else 60)
    play = started(world, maxRatio=1.2)
    assert ended(play) == "RolledBack"
    message = world.change("r590").status.message
    assert "gate canary-work: 90 on 2 changed, 60 on 2 control nodes: the ratio 1.5 is above 1.2" in message


def test_work_that_takes_as_long_as_on_control_nodes_passes() -> None:
    world = fleet()
    play = started(world, maxRatio=1.2, controlNodes=3)
    play.run(lambda: world.change("r590").status.phase == "Baking", 3600)
    gates = {gate.name: gate for gate in world.change("r590").status.gates}
    play.run(lambda: world.change("r590").status.wave == 1, 3600)
    assert len(world.jobs) == 5
    assert gates == {} or "canary-work" in gates
    assert ended(play) == "Succeeded"


def test_work_without_an_answer_of_control_nodes_does_not_pass() -> None:
    world = fleet()
    world.job_ends = lambda world, node: ("Succeeded", 60) if world.nodes[node].loaded == BROKEN else ("", 0)
    play = started(world, maxRatio=1.2)
    assert play.until_phase("r590", "Held", "Succeeded", "RolledBack") == "Held"
    assert "canary-work" in world.change("r590").status.message


def test_a_change_that_is_tried_again_does_its_work_again() -> None:
    world = fleet()
    world.job_ends = lambda world, node: ("Failed", 30)
    play = started(world)
    assert ended(play) == "RolledBack"
    world.job_ends = lambda world, node: ("Succeeded", 30)
    world.put_spec("FleetChange", "r590", command={"id": "1", "verb": "Retry"})
    play.run(lambda: world.change("r590").status.phase != "RolledBack", 600)
    assert ended(play) == "Succeeded"
    assert {job.state for job in world.jobs.values()} == {"Failed", "Succeeded"}


def test_the_job_is_the_template_on_that_node_alone() -> None:
    world = fleet(2)
    change = world.add("FleetChange", "r590", CHANGE)
    body = job_body(change, CanaryWork(job_template=TEMPLATE, timeout="10m"), "gpu-1", "host-1", "trials")
    spec = body["spec"]
    assert body["metadata"]["namespace"] == "trials"
    assert body["metadata"]["labels"]["team"] == "ml"
    assert [owner["uid"] for owner in body["metadata"]["ownerReferences"]] == [change.metadata.uid]
    assert (spec["backoffLimit"], spec["activeDeadlineSeconds"]) == (0, 600)
    pod = spec["template"]["spec"]
    assert pod["nodeSelector"] == {"zone": "a", "kubernetes.io/hostname": "host-1"}
    assert [toleration["key"] for toleration in pod["tolerations"]] == ["gpu", CHANGE_TAINT]
    assert (pod["restartPolicy"], spec["template"]["metadata"]["labels"]["app"]) == ("Never", "bench")
    assert "metadata" not in TEMPLATE["spec"]["template"]["spec"], "the template itself is left as it was"  # type: ignore[index]
    read = canary_job(convert({**body, "metadata": {**body["metadata"], "uid": "u"}}, JobWire))
    assert (read.node, read.change, read.state) == ("gpu-1", change.metadata.uid, "")


@pytest.mark.parametrize(
    ("conditions", "state"),
    [
        ([], ""),
        ([{"type": "SuccessCriteriaMet", "status": "True"}], ""),
        ([{"type": "Complete", "status": "True"}], "Succeeded"),
        ([{"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded"}], "Failed"),
    ],
)
def test_a_job_has_ended_when_its_conditions_say_so(conditions: list[dict[str, str]], state: str) -> None:
    tree = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "j", "namespace": "windlass-canary", "labels": {"windlass.dev/canary-of": "u"}},
        "status": {
            "startTime": "2027-01-01T00:00:00Z",
            "completionTime": "2027-01-01T00:01:30Z",
            "conditions": conditions,
        },
    }
    from windlass.cluster.delta import Deleted, Put

    cache = OperatorCache("windlass-node")
    cache.push([Put(observed_object(tree))])
    job = cache.observed().jobs["j"]
    assert (job.state, job.seconds) == (state, 90)
    cache.push([Deleted("Job", "windlass-canary/j")])
    assert not cache.observed().jobs


def test_a_job_of_that_label_in_another_namespace_is_not_ours() -> None:
    from windlass.cluster.delta import Put

    metadata = {"name": "j", "namespace": "team", "labels": {"windlass.dev/canary-of": "u"}}
    cache = OperatorCache("windlass-node")
    cache.push([Put(observed_object({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata}))])
    assert not cache.observed().jobs


@pytest.mark.parametrize(
    ("work", "path"),
    [
        ({"jobTemplate": {}}, "spec.canary.work.jobTemplate.spec.template.spec"),
        ({"jobTemplate": TEMPLATE, "timeout": "soon"}, "spec.canary.work.timeout"),
        ({"jobTemplate": TEMPLATE, "maxRatio": 0}, "spec.canary.work.maxRatio"),
        ({"jobTemplate": TEMPLATE, "controlNodes": -1}, "spec.canary.work.controlNodes"),
    ],
)
def test_work_that_can_not_be_made_is_refused(work: dict[str, Any], path: str) -> None:
    spec = CHANGE | {"canary": {"work": work}}
    tree = {
        "apiVersion": "windlass.dev/v1alpha1",
        "kind": "FleetChange",
        "metadata": {"name": "x"},
        "spec": spec,
    }
    with pytest.raises(InputError) as raised:
        decode_operator_object(tree)
    assert path in str(raised.value)
