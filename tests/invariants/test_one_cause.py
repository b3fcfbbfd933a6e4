"""One code for a hold, whoever is asked: the plan, the pod's condition, the event, the metric, and `why`'s first link.

On worlds with lone pods, gangs by label and by PodGroup, queued workloads and Jobs, nodes with taints, cordons and
ill GPUs, and pods that run. `why` may go deeper, to what the engine can't see, and then its chain ends there.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.diagnose.objects import evidence
from tests.invariants import draws
from tests.invariants.crowds import NOW, crowd
from tests.invariants.objects import NAMESPACE, QUEUE, pod, pod_spec, stamp
from tests.invariants.steps import step
from tests.invariants.world import World

from windlass.apply.messages import code_of_message, condition_message
from windlass.diagnose.causes import CAUSES
from windlass.diagnose.why import why
from windlass.model.codec import decode_object
from windlass.model.configuration import Settings
from windlass.model.decision import Hold
from windlass.model.unstructured import Unstructured
from windlass.planner import plan_objects

TAINTS = (
    {"key": "nvidia.com/gpu", "effect": "NoSchedule"},
    {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"},
)
TOTAL, GROUP_NAME = "kueue.x-k8s.io/pod-group-total-count", "kueue.x-k8s.io/pod-group-name"
KINDS = ("Pod", "Job", "Workload", "PodGroup")
SOME = settings(max_examples=40, deadline=None)


def lived_world(rng: Random) -> World:
    """Some of everything, some of it running."""
    world = draws.make_world(rng)
    for _ in range(rng.randint(4, 12)):
        draws.happen(world, rng)
        step(world, rng, again=False)
    for event in (draws.submit_pod, draws.submit_gang, draws.submit_workload):
        event(world, rng)
    return world


def touched(world: World, rng: Random) -> list[Unstructured]:
    """The objects, with rules on nodes, and with work in further forms."""
    trees = [copy.deepcopy(tree) for tree in world.objects()]
    for tree in trees:
        if tree["kind"] == "Node" and rng.random() < 0.4:
            tree["spec"] |= rng.choice(({"unschedulable": True}, *({"taints": [one]} for one in TAINTS)))
    return [*trees, *_label_gang(world, rng), *_jobs(world, rng)]


def _label_gang(world: World, rng: Random) -> Iterator[Unstructured]:
    total, there = rng.choice(((2, 2), (3, 3), (3, 2)))
    spec = pod_spec(1, rng.choice((1, 2, 4)))
    for number in range(there):
        notes, labels = {TOTAL: str(total)}, {GROUP_NAME: "labelled"}
        yield pod(f"labelled-{number}", spec, created=world.now, labels=labels, annotations=notes)


def _jobs(world: World, rng: Random) -> Iterator[Unstructured]:
    for number, queue in enumerate(("q0", "nowhere", "")):
        spec = pod_spec(1, rng.choice((1, 4, 16)), restartPolicy="Never")
        metadata: Unstructured = {"name": f"job-{number}", "namespace": NAMESPACE, "uid": f"job-{number}"}
        metadata |= {"labels": {QUEUE: queue} if queue else {}, "creationTimestamp": stamp(world.now)}
        body = {"suspend": True, "parallelism": 1, "completions": 1, "template": {"spec": spec}}
        yield {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": body}


def holds_of(trees: Sequence[Unstructured], now: int) -> list[Hold]:
    plan, _ = plan_objects([decode_object(tree) for tree in trees], Settings(), now)
    return list(plan.holds)


def question(trees: Sequence[Unstructured], hold: Hold) -> str:
    """How a person would ask about it: by its own object, or by a member."""
    name = hold.workload.partition("/")[2]
    there = {tree["kind"] for tree in trees if tree["metadata"]["name"] == name}
    kind = next((kind for kind in KINDS if kind in there), "")
    if kind:
        return f"{kind.lower()}/{name}"
    (first, *_) = [
        tree["metadata"]["name"] for tree in trees if tree["metadata"].get("labels", {}).get(GROUP_NAME) == name
    ]
    return f"pod/{first}"


@SOME
@given(st.randoms(use_true_random=False))
def test_whoever_is_asked_names_the_same_cause(rng: Random) -> None:
    world = lived_world(rng)
    trees = touched(world, rng)
    holds = holds_of(trees, world.now)
    for hold in holds:
        code = hold.verdict.code
        assert code_of_message(condition_message(hold.verdict)) == code, "the condition, and the event with its message"
        diagnosis = why(evidence(trees), question(trees, hold), NAMESPACE, world.now)
        codes = [link.code for link in diagnosis.chain]
        assert codes[0] == code, f"{hold}\n{diagnosis}"
        assert codes[-1] == diagnosis.code
        assert code in CAUSES


@pytest.mark.parametrize("seed", range(40))
def test_so_it_is_for_gangs_in_every_form(seed: int) -> None:
    """Asked by the object that stands for it, or by a pod that waits: also of an owner that is not at hand."""
    trees = crowd(Random(seed))
    plan, _ = plan_objects([decode_object(tree) for tree in trees], Settings(), NOW)
    for hold in plan.holds:
        name = hold.workload.partition("/")[2]
        there = {tree["kind"] for tree in trees if tree["metadata"]["name"] == name}
        asked = [f"{kind.lower()}/{name}" for kind in KINDS if kind in there]
        for subject in asked or [f"pod/{pod_name}" for pod_name in waiting_members(trees, name)[:1]]:
            diagnosis = why(evidence(trees), subject, NAMESPACE, NOW)
            assert diagnosis.chain[0].code == hold.verdict.code, f"{subject}: {hold}\n{diagnosis}"
            assert diagnosis.chain[-1].code == diagnosis.code


def waiting_members(trees: Sequence[Unstructured], group: str) -> list[str]:
    """Pods without a node that name the group, or an owner of that name."""
    pods = [tree for tree in trees if tree["kind"] == "Pod" and not tree["spec"].get("nodeName")]
    metas = [tree["metadata"] for tree in pods]
    return [
        meta["name"]
        for meta in metas
        if group in meta["labels"].values() or any(owner["name"] == group for owner in meta.get("ownerReferences", ()))
    ]
