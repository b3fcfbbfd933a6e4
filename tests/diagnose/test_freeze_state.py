"""Work that waits while Windlass is frozen or handed over: `why` says since when, by whom, and how it goes on."""

from __future__ import annotations

import pytest
from tests.diagnose.objects import NOW, ask, evidence, node, pod
from tests.diagnose.test_outlook import FULL, job, queues

from windlass.diagnose.finding import Diagnosis
from windlass.diagnose.survey import survey
from windlass.dump.raw_objects import ObjectHeader, RawObject
from windlass.dump.redact import redact_object
from windlass.kube.freeze import FROZEN, HANDED_OVER, RUNNING, FreezeState, freeze_object
from windlass.model.unstructured import Unstructured

WINDLASS = {"schedulerName": "windlass"}
SINCE = "2026-03-01T11:50:00Z"
WORDS = f"Windlass is frozen since {SINCE} by alice: evictions"


def state(name: str = FROZEN, reason: str = "evictions", namespace: str = "windlass-system") -> Unstructured:
    return freeze_object(namespace, FreezeState(name, SINCE, "alice", reason))


def asked(*objects: Unstructured, gpus: int = 1) -> Diagnosis:
    return ask("pod/asked", node("g1", 4), pod("asked", gpus, spec=WINDLASS), *objects)


def test_a_pod_that_a_node_would_take_waits_for_a_person() -> None:
    assert asked().code == "NONE"
    found = asked(state())
    assert found.code == "WRONG_SCHEDULER"
    assert found.headline == f"{WORDS} — let it go on: windlass freeze --off."
    assert found.state == "blocked"


def test_what_holds_it_besides_is_said_as_evidence() -> None:
    found = asked(state(), pod("busy", 4, on="g1"))
    assert found.headline.startswith(WORDS)
    assert found.contributing == ("GPU_FULL",)
    assert any("nvidia.com/gpu" in line for line in found.evidence)


def test_what_a_person_has_to_change_anyway_stays_the_cause() -> None:
    found = asked(state(), gpus=9)
    assert found.code == "REQUEST_EXCEEDS_CLUSTER"
    assert WORDS in found.evidence


def test_queued_work_waits_for_it_too_and_the_survey_says_it_once() -> None:
    objects = [node("g1", 8), *queues(), job("a", 4, FULL), job("b", 4, FULL), pod("c", 1, spec=WINDLASS), state()]
    assert ask("job/a", *objects).headline.startswith(WORDS)
    entries = survey(evidence(objects), "", NOW).entries
    assert [(entry.code, len(entry.subjects)) for entry in entries] == [("WRONG_SCHEDULER", 3)]


@pytest.mark.parametrize("other", [state(RUNNING), state(namespace="windlass-node")])
def test_what_goes_on_or_is_only_the_node_agents_holds_nothing(other: Unstructured) -> None:
    assert asked(other).code == "NONE"


def test_pods_of_other_schedulers_and_running_ones_are_not_concerned() -> None:
    objects = [node("g1", 4), state(), pod("other", 1), pod("runs", 1, on="g1", spec=WINDLASS)]
    assert {ask(name, *objects).code for name in ("pod/other", "pod/runs")} == {"NONE"}


def test_a_handover_is_named_with_the_command_that_undoes_it() -> None:
    given = state(reason=HANDED_OVER)
    found = asked(given)
    assert found.headline.startswith(f"Windlass is handed over to kube-scheduler since {SINCE} by alice")
    assert "windlass handover --back" in found.headline
    assert asked(given, pod("busy", 4, on="g1")).code == "GPU_FULL"
    assert ask("job/a", node("g1", 8), *queues(2), job("a", 1, FULL), given).code == "WRONG_SCHEDULER"


def test_a_redacted_dump_keeps_the_state_and_not_who_and_why() -> None:
    tree = state()
    left = redact_object(RawObject(ObjectHeader(api_version="v1", kind="ConfigMap"), "", tree))
    assert left["data"] == {"state": FROZEN, "since": SINCE}
