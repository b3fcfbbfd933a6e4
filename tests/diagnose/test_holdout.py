"""Failures that were written down before `why` was asked: each has its established cause, on what a thread showed."""

from __future__ import annotations

import pytest
from tests.diagnose.holdout import CASES
from tests.diagnose.objects import ask


@pytest.mark.parametrize("name", CASES)
def test_the_established_cause_is_named(name: str) -> None:
    case = CASES[name]
    found = ask(case.question, *case.objects, logs=case.logs, hosts=case.hosts)
    assert found.code == case.code, found.headline
    assert set(case.contributing) <= set(found.contributing)


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.question == "pod/asked"])
def test_the_schedulers_words_are_not_needed(name: str) -> None:
    """Without the scheduler's own events, whose wording changes, the cause is the same wherever objects show it."""
    case = CASES[name]
    left = [
        obj
        for obj in case.objects
        if obj["kind"] != "Event" or obj["reason"] != "FailedScheduling" or "karpenter" in str(obj["source"])
    ]
    found = ask(case.question, *left, logs=case.logs, hosts=case.hosts)
    assert found.code == case.code or name in SAID_BY_EVENTS_ONLY, found.headline


SAID_BY_EVENTS_ONLY = {
    "resource-class-of-an-older-api",
    "local-disks-are-too-full-for-the-claim",
    "selector-with-an-attribute-that-no-device-has",
}
