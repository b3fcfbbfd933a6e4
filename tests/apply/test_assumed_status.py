"""Statuses that were sent and not shown yet: decisions see them until the watch shows the same or something newer."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.apply.objects import admission, decoded, workload

from windlass.apply.assumed_status import AssumedStatuses, parse_resource_version, with_status
from windlass.model.kueue import WorkloadObject


def shown(version: int, *, admitted: bool = False, name: str = "w", uid: str = "uid-w") -> WorkloadObject:
    status = {"admission": admission()} if admitted else {}
    made: WorkloadObject = decoded(workload(name, status=status, uid=uid, resourceVersion=str(version)))
    return made


def admitted_from(known: WorkloadObject) -> WorkloadObject:
    return with_status(known, shown(0, admitted=True).status.admission, ())


def evicted_from(known: WorkloadObject) -> WorkloadObject:
    evicted = decoded(workload("w", status={"conditions": [{"type": "Evicted", "status": "True"}]}))
    return with_status(known, known.status.admission, evicted.status.conditions)


def is_admitted(obj: WorkloadObject) -> bool:
    return obj.status.admission is not None


@pytest.mark.parametrize(
    ("text", "number"), [("", 0), ("0", 0), ("17", 17), ("-3", 0), ("1.5", 0), ("x", 0), ("٣", 0), ("²", 0)]
)
def test_a_version_that_is_no_number_is_older_than_any(text: str, number: int) -> None:
    assert parse_resource_version(text) == number


def test_a_status_replaces_admission_and_conditions_and_nothing_else() -> None:
    known: WorkloadObject = decoded(
        workload("w", status={"schedulingStats": {"evictions": [{"reason": "Preempted", "count": 2}]}})
    )
    assumed = admitted_from(known)
    assert is_admitted(assumed)
    assert assumed.status.scheduling_stats == known.status.scheduling_stats
    assert (assumed.metadata, assumed.spec) == (known.metadata, known.spec)


def test_older_states_on_the_watch_are_overlaid_until_the_write_is_shown() -> None:
    statuses, known = AssumedStatuses(), shown(5)
    sent = statuses.assume(known, admitted_from(known), is_admission=True)
    assert is_admitted(statuses.overlay(shown(5)))
    assert statuses.finish(sent, "9") is None, "the watch is behind it"
    assert is_admitted(statuses.overlay(shown(7)))
    assert statuses.is_pending(sent)
    seen = shown(9, admitted=True)
    assert statuses.overlay(seen) is seen
    assert not statuses.is_pending(sent)
    later = shown(10)
    assert statuses.overlay(later) is later, "what comes after it counts"


def test_the_write_may_be_shown_before_its_answer_comes() -> None:
    statuses, known = AssumedStatuses(), shown(5)
    sent = statuses.assume(known, admitted_from(known), is_admission=True)
    seen = shown(6, admitted=True)
    assert statuses.overlay(seen) is seen
    assert statuses.finish(sent, "6") is None
    assert statuses.revert(sent) is None


def test_an_eviction_is_shown_when_the_admission_has_gone() -> None:
    statuses, known = AssumedStatuses(), shown(5, admitted=True)
    sent = statuses.assume(known, evicted_from(known), is_admission=False)
    still = statuses.overlay(shown(6, admitted=True))
    assert is_admitted(still), "it uses its quota until the watch shows otherwise"
    assert still.condition("Evicted") is not None
    assert statuses.is_pending(sent)
    gone = shown(7)
    assert statuses.overlay(gone) is gone
    assert not statuses.is_pending(sent)


@pytest.mark.parametrize(("version", "is_over"), [(4, False), (5, True), (6, True)])
def test_before_the_answer_only_states_since_the_base_of_the_write_confirm_it(version: int, is_over: bool) -> None:
    statuses, known = AssumedStatuses(), shown(5)
    sent = statuses.assume(known, admitted_from(known), is_admission=True)
    statuses.overlay(shown(version, admitted=True))
    assert statuses.is_pending(sent) is not is_over


def test_a_smaller_admission_on_the_watch_does_not_confirm_a_larger_one() -> None:
    """An elastic Job grows: the watch still shows what it had, and the quota of the new pods is in use already."""

    def holding(pods: int, version: int) -> WorkloadObject:
        tree = workload("w", status={"admission": admission(count=pods)}, uid="uid-w", resourceVersion=str(version))
        made: WorkloadObject = decoded(tree)
        return made

    statuses, known = AssumedStatuses(), holding(2, 5)
    sent = statuses.assume(known, with_status(known, holding(3, 0).status.admission, ()), is_admission=True)
    seen = statuses.overlay(holding(2, 6)).status.admission
    assert seen is not None
    assert [part.count for part in seen.pod_set_assignments] == [3]
    assert statuses.is_pending(sent)
    statuses.overlay(holding(3, 7))
    assert not statuses.is_pending(sent)


def test_a_second_write_is_based_on_the_first() -> None:
    """The watch shows the admission, which the eviction after it has taken back already."""
    statuses, known = AssumedStatuses(), shown(5)
    first = statuses.assume(known, admitted_from(known), is_admission=True)
    statuses.finish(first, "8")
    assumed = statuses.overlay(shown(6))
    second = statuses.assume(assumed, evicted_from(assumed), is_admission=False)
    assert not statuses.is_pending(first)
    still = statuses.overlay(shown(7))
    assert is_admitted(still), "a state from before the admission confirms no eviction"
    gone = shown(9)
    assert statuses.overlay(gone) is gone
    assert not statuses.is_pending(second)


def test_a_refused_write_gives_back_what_the_watch_last_showed() -> None:
    statuses, known = AssumedStatuses(), shown(5)
    sent = statuses.assume(known, admitted_from(known), is_admission=True)
    newer = shown(6)
    statuses.overlay(newer)
    assert statuses.revert(sent) is newer
    assert statuses.revert(sent) is None, "once"
    later = shown(7)
    assert statuses.overlay(later) is later


def test_a_second_refused_write_gives_back_what_was_observed_and_not_the_first_assumption() -> None:
    statuses, known = AssumedStatuses(), shown(5)
    first = statuses.assume(known, admitted_from(known), is_admission=True)
    statuses.finish(first, "8")
    assumed = admitted_from(known)
    second = statuses.assume(assumed, evicted_from(assumed), is_admission=False)
    assert statuses.revert(first) is None, "the second write has taken its place"
    assert statuses.revert(second) is known


@pytest.mark.parametrize(("answer", "is_over"), [("6", True), ("7", True), ("8", False), ("", False)])
def test_an_answer_ends_the_assumption_if_the_watch_was_quicker(answer: str, is_over: bool) -> None:
    statuses, known = AssumedStatuses(), shown(5)
    sent = statuses.assume(known, admitted_from(known), is_admission=True)
    seen = shown(7)
    statuses.overlay(seen)  # another write came in between, and has taken the admission back
    assert statuses.finish(sent, answer) is (seen if is_over else None)
    assert statuses.is_pending(sent) is not is_over


def test_another_object_of_the_same_name_has_no_assumption() -> None:
    statuses, known = AssumedStatuses(), shown(5)
    sent = statuses.assume(known, admitted_from(known), is_admission=True)
    another = shown(3, uid="another")
    assert statuses.overlay(another) is another
    assert not statuses.is_pending(sent)


def test_objects_of_other_names_are_as_they_are() -> None:
    statuses, known = AssumedStatuses(), shown(5)
    sent = statuses.assume(known, admitted_from(known), is_admission=True)
    other = shown(5, name="other", uid="uid-other")
    assert statuses.overlay(other) is other
    statuses.forget("team/other")
    assert statuses.is_pending(sent)


def test_a_deleted_workload_has_no_assumption() -> None:
    statuses, known = AssumedStatuses(), shown(5)
    sent = statuses.assume(known, admitted_from(known), is_admission=True)
    statuses.forget("team/w")
    statuses.forget("team/w")
    assert not statuses.is_pending(sent)
    assert statuses.revert(sent) is None


def test_the_assumed_object_itself_confirms_nothing() -> None:
    statuses, known = AssumedStatuses(), shown(5)
    assumed = admitted_from(known)
    sent = statuses.assume(known, assumed, is_admission=True)
    assert statuses.overlay(assumed) is assumed
    assert statuses.is_pending(sent)


def test_the_overlay_has_the_newest_of_everything_but_the_status() -> None:
    statuses, known = AssumedStatuses(), shown(5)
    statuses.assume(known, admitted_from(known), is_admission=True)
    labelled = msgspec.structs.replace(shown(6), metadata=msgspec.structs.replace(shown(6).metadata, labels={"a": "b"}))
    seen = statuses.overlay(labelled)
    assert seen.metadata.labels == {"a": "b"}
    assert seen.metadata.resource_version == "6"
    assert is_admitted(seen)


@given(answer_after=st.integers(0, 4), writes=st.integers(1, 4), admitted=st.booleans())
def test_whenever_the_answer_comes_the_write_counts_until_it_is_shown(
    answer_after: int, writes: int, admitted: bool
) -> None:
    """Others write to the object before and after ours; the watch shows one state after the other."""
    known = shown(5, admitted=not admitted)
    before = [shown(6 + number, admitted=not admitted) for number in range(writes)]
    ours = shown(20, admitted=admitted)
    after = [shown(21 + number, admitted=admitted) for number in range(2)]
    statuses = AssumedStatuses()
    assumed = admitted_from(known) if admitted else evicted_from(known)
    sent = statuses.assume(known, assumed, is_admission=admitted)
    for number, state in enumerate([*before, ours, *after]):
        if number == answer_after:
            statuses.finish(sent, "20")
        visible = statuses.overlay(state)
        is_shown = state in (ours, *after)
        assert (visible is state) is is_shown
        assert statuses.is_pending(sent) is not is_shown
        if not is_shown:
            assert is_admitted(visible), "an eviction under way uses its quota as an admission does"
        if is_shown:
            break
    assert statuses.revert(sent) is None
