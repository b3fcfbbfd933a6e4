"""The table of the ways to mark a gang: which one counts, and which number of pods can be understood."""

from __future__ import annotations

import pytest

from windlass.model.group_membership import (
    GROUP_ANNOTATIONS,
    GROUP_FORMS,
    GROUP_LABELS,
    KUEUE_FORM,
    GroupMember,
    GroupReference,
    group_disagreement,
    group_reference,
    workload_name,
)

KUEUE = "kueue.x-k8s.io/pod-group-name"
TOTAL, QUEUE, KAI_QUEUE = "kueue.x-k8s.io/pod-group-total-count", "kueue.x-k8s.io/queue-name", "kai.scheduler/queue"
LABELS = {key: f"label {key}" for key in GROUP_LABELS}
ANNOTATIONS = {key: f"annotation {key}" for key in GROUP_ANNOTATIONS}


def test_the_first_form_that_a_pod_uses_counts() -> None:
    labels, annotations, found = dict(LABELS), dict(ANNOTATIONS), []
    assert group_reference(labels, annotations, "native") == GroupReference(GROUP_FORMS[0].source, "native")
    while (group := group_reference(labels, annotations, "")) is not None:
        found.append(group.name)
        place, _, key = group.name.partition(" ")
        del (labels if place == "label" else annotations)[key]
    assert found == [
        "label scheduling.x-k8s.io/pod-group",
        "label pod-group.scheduling.sigs.k8s.io",
        "annotation scheduling.k8s.io/group-name",
        "annotation scheduling.volcano.sh/group-name",
        "annotation pod-group-name",
        f"annotation {KUEUE}",
        f"label {KUEUE}",
    ]


def test_an_empty_name_is_none() -> None:
    assert group_reference(dict.fromkeys(LABELS, ""), dict.fromkeys(ANNOTATIONS, ""), "") is None


def test_a_workload_is_named_by_itself_before_the_group() -> None:
    assert workload_name({KUEUE: "group"}, {"kueue.x-k8s.io/workload": "own"}) == "own"
    assert workload_name({KUEUE: "group"}, {}) == "group"
    assert workload_name({"scheduling.x-k8s.io/pod-group": "other"}, {}) == ""


@pytest.mark.parametrize("value", [None, "", "0", "-1", "two", "2.5", "٣", 2, "1" * 9])
def test_a_size_that_kueue_refuses_is_none(value: object) -> None:
    assert KUEUE_FORM.size_in({TOTAL: value}) is None


def test_a_size() -> None:
    assert KUEUE_FORM.size_in({TOTAL: "12"}) == 12


def member(name: str, labels: dict[str, str], size: str = "2") -> GroupMember:
    return GroupMember(f"team/{name}", labels, {TOTAL: size})


@pytest.mark.parametrize(
    ("one", "other", "said"),
    [
        (
            ({QUEUE: "a"}, "2"),
            ({QUEUE: "b"}, "2"),
            "different queues: LocalQueue a on team/m0 and LocalQueue b on team/m1",
        ),
        (({QUEUE: "a"}, "2"), ({}, "2"), "different queues: LocalQueue a on team/m0 and no queue on team/m1"),
        (({KAI_QUEUE: "a"}, "2"), ({KAI_QUEUE: "b"}, "2"), "Queue.scheduling.run.ai a on team/m0"),
        (({}, "2"), ({}, "3"), f'different values of {TOTAL}: "2" on team/m0 and "3" on team/m1'),
    ],
)
def test_members_that_disagree(one: tuple[dict[str, str], str], other: tuple[dict[str, str], str], said: str) -> None:
    members = [member("m0", *one), member("m1", *other), member("m2", *one)]
    assert said in group_disagreement(KUEUE_FORM, members)
    assert group_disagreement(KUEUE_FORM, members[::-1]) == group_disagreement(KUEUE_FORM, members)
    assert group_disagreement(KUEUE_FORM, [members[0], members[2]]) == ""
