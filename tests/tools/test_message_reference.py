"""The list of messages: complete sentences, and examples that are filled in and don't contradict themselves."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from tools.reference import message_examples
from tools.reference import messages as message_reference
from tools.reference.message_placeholders import PLACEHOLDER
from tools.reference.messages import messages_reference

PAGE = messages_reference()


@pytest.fixture(scope="module")
def templates() -> dict[str, str]:
    """Message → example, of every message with placeholders."""
    made: dict[str, str] = {}

    def remembering(original: Callable[[str], str]) -> Callable[[str], str]:
        return lambda template: made.setdefault(template, original(template))

    with pytest.MonkeyPatch.context() as patch:
        for name in ("example", "room_example"):
            patch.setattr(message_reference, name, remembering(getattr(message_examples, name)))
        messages_reference()
    return {template: example for template, example in made.items() if PLACEHOLDER.search(template)}


@pytest.mark.parametrize(
    "row",
    [
        # Calls with a variable code
        "| `TAINT_NOT_TOLERATED` | the pod does not tolerate the taint {taints} of {count} nodes (nearest: {node}) |",
        "| `GPU_FULL` | too few {name} are free: {total} on {count} matching nodes, {wanted} needed |",
        "| `DEVICE_UNHEALTHY` | node {node} has {count} unhealthy {name} |",
        # A text that is put together with +=
        "| `DEVICE_PLUGIN_FAILING` | the device plugin {pod} is on node {node} and has restarted {restarts} times |",
        # Texts that a function is given
        "| `UNKNOWN` | the pod is pending, but the evidence has no Nodes: collect it as a user that may list nodes |",
        # The engine's sentences
        "| `GANG_INCOMPLETE` | {existing} of {size} pods of group {key} exist |",
        "| `order` | quota suffices, but a workload ahead of it in {name} waits and has to start ",
        "| planned to start at {start} on {where}, when {keys} end (by run-time limit); {ahead} workloads wait",
        # Obstacles, queues, details and outlooks
        "| `priority` | it can preempt nothing: all pods on nodes that suit it have priority {priority} or higher |",
        "| `stuck` | a pod that should have ended at {at} still holds resources that this workload needs: its owner ",
        "| `unhealthy` | node {names} would take a pod if its GPUs {numbers} were healthy |",
        "| `ADMISSION_DEFERRED` | not considered: the decision stopped after {max_cycles} admission cycles |",
        "| `KUEUE_QUOTA_INSUFFICIENT` | Workload no longer fits after processing another workload |",
        "| `any` | only {placeable} of {count} pods fit{reasons} |",
        "| `infeasible` | it would not fit even if nothing else ran |",
        "| {number} workloads of its queue wait ahead of it |",
        "| no planned start: it is not known when what it waits for will end |",
        "| `Suspended` | Waiting for queue {queue} to admit it. |",
        # Bugs, binds that fail, Workload conditions, queues that stay with Kueue
        "| `INTERNAL_ERROR` | it is left out of decisions because of a bug in Windlass ({kind} in {where}); ",
        "| `FailedScheduling` | no volume for claims {claims} within {minutes} minutes: see kubectl describe pvc |",
        "| `WaitForRecovery` | A pod is no longer ready |",
        "| `TakeOverRefused` | Kueue still admits there (stopPolicy {wrong}): set spec.stopPolicy of ClusterQueue ",
        "it could start once {count} running workloads end, at {at} (by run-time limits",
        # The operator, alerts, flavors in Kueue's words
        "| `DrainBlocked` | pods can't be evicted | see the named budget | the node is given back |",
        "| `WindlassGPUsWithdrawn` | warning | {{ $value }} GPUs of {{ $labels.node }} are given to nobody |",
        "| operator/decide/repair.py | {device_name} is validated and back in service |",
        "| telemetry/bottleneck.py | for GPUs that are in use |",
        "| queueing/order_breakdown.py | first of its queue |",
        "| `any` | couldn't assign flavors to pod set {part}: {reasons} |",
        # Causes and remedies of findings
        "| a GPU is lost, or the nodes are partitioned differently | nvidia-smi -L on the node |",
    ],
)
def test_the_page_has_every_kind_of_sentence(row: str) -> None:
    assert row in PAGE


def test_a_remedy_stands_beside_its_own_sentence() -> None:
    """Which one it is depends on the code that a function was given."""
    rows = [line for line in PAGE.splitlines() if "kubectl uncordon {node}" in line and line.startswith("| `")]
    assert rows
    assert {row.split("`")[1] for row in rows} <= {"NODE_UNSCHEDULABLE", "takes-work", "any"}
    assert "look for Xid messages in the node's kernel log, then reset" in PAGE, "every branch is listed"


def test_no_name_is_left_out() -> None:
    assert not [line for line in PAGE.splitlines() if re.search(r"[^|\s]  [^|\s]", line)]


def test_what_the_code_never_says_is_not_listed() -> None:
    """Queues of KAI and Volcano are in no namespace and have no stopPolicy."""
    assert not re.search(r"Queue\.scheduling\S+ \S+ (in namespace|is stopped \(spec)", PAGE)
    assert "stopPolicy of Queue.scheduling" not in PAGE


def test_every_placeholder_is_filled_in(templates: dict[str, str]) -> None:
    assert "…" not in "".join(templates.values())
    assert not [example for example in templates.values() if PLACEHOLDER.search(example)]


def test_no_sample_is_left_over(templates: dict[str, str]) -> None:
    used, named = set[str](), set[str]()
    for template in templates:
        starts = [start for start in message_examples.VALUES if template.startswith(start)]
        start = max(starts, key=len, default="")
        values = message_examples.VALUES.get(start, ())
        names = PLACEHOLDER.findall(template)
        assert len(values) <= len(names), template
        used.add(start)
        named.update(names[len(values) :])
    assert set(message_examples.VALUES) <= used
    samples = (message_examples.SAMPLES, message_examples.ROOM_SAMPLES, message_examples.OPERATOR_SAMPLES)
    assert set().union(*samples) <= named


@pytest.mark.parametrize(
    "example",
    [
        "the nominal quota of all queues is 24 nvidia.com/gpu, but the nodes have 16",
        "the launcher waits for 4 nodes, but 3 pods are created",
        "requests 16 nvidia.com/gpu in total, but ClusterQueue research admits at most 8",
        "requests 32 cpu with 1 nvidia.com/gpu, more than any node has for them (16)",
        "ClusterQueue research is stopped (stopPolicy",
        "workloads preempt one another again and again: team/train 5 times, blue/batch 4 times",
    ],
)
def test_examples_agree_with_themselves(templates: dict[str, str], example: str) -> None:
    assert any(made.startswith(example) for made in templates.values())
