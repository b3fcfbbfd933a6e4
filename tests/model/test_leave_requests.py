"""What tenants write into the annotations of asks and notices: whatever it is, it is read or counts as not given."""

from __future__ import annotations

import pytest

from windlass.model.leaving import Request, read_answers, read_request
from windlass.model.meta import ObjectMeta
from windlass.model.notices import LeaveRequest, Notice, most_urgent, read_leave_request

LEAVE, ASK, ANSWER = "windlass.dev/leave", "windlass.dev/ask", "windlass.dev/ask-answer"
DEEP = '{"until": "2026-01-01T00:00:00Z", "more": ' + "[" * 1500 + "]" * 1500 + "}"
LONG = '{"until": "2026-01-01T00:00:00Z", "more": "' + "x" * 5000 + '"}'


@pytest.mark.parametrize(
    "text", ["", "soon", "[]", '{"until": "soon"}', '{"until": 5}', '{"cause": "x"}', '{"until":"\\ud800"}', DEEP, LONG]
)
def test_what_is_no_request_to_leave(text: str) -> None:
    assert read_leave_request({LEAVE: text}) is None


def test_a_request_to_leave() -> None:
    text = '{"until": "2026-01-01T00:00:00Z", "cause": "repair gpu-3", "more": 1}'
    assert read_leave_request({LEAVE: text}) == LeaveRequest("2026-01-01T00:00:00Z", "repair gpu-3")
    assert read_leave_request({}) is None


def test_an_answer_that_is_nested_a_thousand_deep_is_none() -> None:
    request = Request("id", "2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z")
    answers, problem = read_answers([ObjectMeta(annotations={ANSWER: DEEP})], request)
    assert answers == []
    assert "is no answer" in problem
    assert read_request([ObjectMeta(annotations={ASK: DEEP})]) is None


def test_certain_notices_come_first_and_then_the_shortest() -> None:
    likely, declared = Notice("likely", "a", is_certain=False, seconds=5), Notice("declared", "b")
    later, known, now = Notice("later", "c", until=200), Notice("known", "d", until=100), Notice("now", "e", seconds=15)
    found = [likely, declared, later, known, now]
    order = []
    while found:
        first = most_urgent(found)
        assert first is not None
        order.append(first.cause)
        found.remove(first)
    assert order == ["now", "known", "later", "declared", "likely"]
    assert most_urgent([]) is None
