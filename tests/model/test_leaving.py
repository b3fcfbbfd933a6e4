"""Asks and answers as text in annotations: what can't be read counts as nothing, and is said so."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.model.leaving import (
    Answer,
    AskTerms,
    Request,
    new_request,
    read_answers,
    read_request,
    refusal_of,
    write,
)
from windlass.model.meta import ObjectMeta

NOW = 1_767_226_000
ASK, ANSWER = "windlass.dev/ask", "windlass.dev/ask-answer"


def meta(**annotations: str) -> ObjectMeta:
    return ObjectMeta(annotations={f"windlass.dev/{name}": text for name, text in annotations.items()})


def test_what_is_written_is_read() -> None:
    request = new_request("uid", NOW, NOW + 60, "Priority")
    assert read_request([meta(), meta(ask=write(request))]) == request
    assert (request.asked_at, request.until_at) == (NOW, NOW + 60)
    answer = Answer(request.id, "2026-01-01T00:06:50Z", "s3://b")
    found, problem = read_answers([ObjectMeta(annotations={ANSWER: write(answer)})], request)
    assert (found, problem) == ([answer], "")
    assert answer.answered_at == answer.checkpoint_at == NOW + 10


def test_the_earliest_ask_counts() -> None:
    first, second = new_request("uid", NOW, NOW + 60), new_request("uid", NOW + 5, NOW + 65)
    assert first.id != second.id
    assert read_request([meta(ask=write(second)), meta(ask=write(first))]) == first


@given(st.text(max_size=60) | st.sampled_from(['{"id":1}', "[]", '{"id":"x","asked":"no","until":"no"}', "{" * 9000]))
def test_whatever_is_written_there_can_be_read(text: str) -> None:
    hostile = ObjectMeta(annotations={ASK: text, ANSWER: text})
    assert read_request([hostile]) is None
    found, problem = read_answers([hostile], Request("x", "", ""))
    assert all(refusal_of(answer) for answer in found)
    assert not text or found or problem or read_answers([hostile], Request("1", "", ""))


@pytest.mark.parametrize(
    ("declared", "most", "seconds"), [(None, None, 60), (90, None, 90), (90, 30, 30), (None, 30, 30), (9999, None, 600)]
)
def test_the_time_is_what_is_declared_within_both_limits(declared: int | None, most: int | None, seconds: int) -> None:
    assert AskTerms(declared, most).seconds(60, 600) == seconds


def test_an_answer_without_a_time_is_none() -> None:
    assert refusal_of(Answer("x", "soon")) == "'soon' is not the time of a checkpoint"
    assert refusal_of(Answer("x", "2026-01-01T00:00:00Z", "node://n/a"), ["n"]).endswith("is on node n, which goes")
