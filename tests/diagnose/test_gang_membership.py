"""Diagnosis, the page and simulations name the gang that the engine decides on, in whatever form a pod names it."""

from __future__ import annotations

import copy

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from tests.diagnose.objects import NOW, evidence, node, pod, thing

from windlass.cluster.workloads import group_workloads, grouping_inputs
from windlass.diagnose.check.all_rules import RULES
from windlass.diagnose.check.manifest import STDIN, read_manifests
from windlass.diagnose.check.rule import CheckContext
from windlass.diagnose.gang import find_gangs
from windlass.diagnose.subject import find_subject, group_of, pod_group_of
from windlass.diagnose.why import why
from windlass.model.codec import decode_object
from windlass.model.configuration import Settings
from windlass.model.group_membership import ANNOUNCED_FORMS, GANG_KINDS, GROUP_FORMS, KUEUE_FORM, NATIVE, GroupForm
from windlass.model.pod import Pod
from windlass.model.unstructured import Unstructured
from windlass.model.workload import Workload
from windlass.planner import plan_objects
from windlass.simulate.tradeoffs import job_of
from windlass.web.pods import job_key_of

KUEUE = "kueue.x-k8s.io/pod-group-name"
PYTORCH_JOB = [{"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": "job", "controller": True}]
WAYS = [
    (place, key)
    for form in GROUP_FORMS
    for place, keys in (("annotations", form.annotations), ("labels", form.labels))
    for key in keys
] + [("spec", NATIVE)]
"""Every place where a pod can name a group."""


def marked(names: dict[tuple[str, str], str], owned: bool) -> Unstructured:
    tree = pod("p")
    for (place, key), name in names.items():
        if place == "spec":
            tree["spec"]["schedulingGroup"] = {"podGroupName": name}
        else:
            tree["metadata"][place][key] = name
    if owned:
        tree["metadata"]["ownerReferences"] = PYTORCH_JOB
    return tree


def engine_workloads(*trees: Unstructured) -> tuple[Workload, ...]:
    objects = [decode_object(copy.deepcopy(tree)) for tree in trees]
    return group_workloads(grouping_inputs(objects, NOW)).workloads


@given(st.dictionaries(st.sampled_from(WAYS), st.sampled_from(["a", "b", ""])), st.booleans())
def test_every_room_names_the_gang_that_the_engine_decides_on(names: dict[tuple[str, str], str], owned: bool) -> None:
    tree = marked(names, owned)
    (workload,) = engine_workloads(tree)
    gang = workload.key.partition("/")[2] if workload.kind == "PodGroup" else ""
    (item,) = evidence([tree]).of_kind("Pod")
    group = group_of(item)
    assert (group.name if group is not None else "") == gang
    owner = ("PyTorchJob", "job") if owned else ("Pod", "p")
    assert job_key_of(tree)[1:] == (("Group", gang) if gang else owner)
    decoded = decode_object(tree)
    assert isinstance(decoded, Pod)
    assert job_of(decoded).partition("#")[0] == (f"team/{gang}" if gang else "team/p")
    assert [gang.name for gang in find_gangs(evidence([tree])).values()] == (
        [gang] if gang else ["job"] if owned else []
    )


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_every_form_makes_one_gang(way: tuple[str, str]) -> None:
    pods = [marked({way: "ring"}, owned=False) for _ in range(2)]
    for number, tree in enumerate(pods):
        tree["metadata"] |= {"name": f"p{number}"}
    (workload,) = engine_workloads(*pods)
    assert (workload.key, workload.kind) == ("team/ring", "PodGroup")
    assert workload.hold, "without its object, or its number of pods"


def test_a_workload_of_kueues_counts_before_a_group() -> None:
    tree = marked({("labels", "scheduling.x-k8s.io/pod-group"): "a", ("labels", KUEUE): "b"}, owned=False)
    sets = [{"name": "main", "count": 1, "template": {"spec": tree["spec"]}}]
    made = thing("Workload", "b", {"podSets": sets}, "kueue.x-k8s.io/v1beta2")
    assert [workload.key for workload in engine_workloads(made, tree)] == ["team/b"]
    assert [gang.name for gang in find_gangs(evidence([made, tree])).values()] == ["b"]


@pytest.mark.parametrize(("api", "kind"), sorted(GANG_KINDS))
def test_why_knows_every_kind_of_owner_that_makes_a_gang(api: str, kind: str) -> None:
    def half(name: str) -> list[Unstructured]:
        owner = {"apiVersion": f"{api}/v1", "kind": kind, "name": name, "controller": True}
        pods = [pod(f"{name}-0", 1, on="n"), pod(f"{name}-1", 1)]
        for tree in pods:
            tree["metadata"]["ownerReferences"] = [owner]
        return pods

    answer = why(evidence([node("n", 2), *half("a"), *half("b")]), "pod/a-1", "team", NOW)
    assert answer.code == "GANG_DEADLOCK"
    assert "a has 1 of 2; b has 1 of 2" in answer.headline


def test_the_topmost_owner_is_the_gang() -> None:
    cluster = thing("RayCluster", "low", {}, "ray.io/v1")
    cluster["metadata"]["ownerReferences"] = [
        {"apiVersion": "ray.io/v1", "kind": "RayJob", "name": "top", "controller": True}
    ]
    job = thing("RayJob", "top", {}, "ray.io/v1")
    found = find_gangs(evidence([job, cluster, pod("p", owner=("RayCluster", "low"))]))
    assert [gang.name for gang in found.values()] == ["top"]


def test_groups_of_one_name_in_two_forms_are_two_gangs() -> None:
    group = thing("PodGroup", "ring", {"minMember": 2}, "scheduling.volcano.sh/v1beta1")
    volcano = marked({("annotations", "scheduling.k8s.io/group-name"): "ring"}, owned=False)
    other = marked({("labels", "scheduling.x-k8s.io/pod-group"): "ring"}, owned=False)
    other["metadata"]["name"] = "other"
    subject = find_subject(evidence([group, volcano, other]), "podgroup/ring", "team")
    assert [item.name for item in subject.pods] == ["p"]


# Announced groups, which are no objects

EVERY_FORM = pytest.mark.parametrize("form", ANNOUNCED_FORMS.values(), ids=ANNOUNCED_FORMS)


def announced(count: int, total: str | None, form: GroupForm = KUEUE_FORM) -> list[Unstructured]:
    labels, notes = ({form.labels[0]: "ring"}, {}) if form.labels else ({}, {form.annotations[0]: "ring"})
    notes = notes if total is None else {**notes, form.size_annotation: total}
    pods = [pod(f"p{number}", 1, labels={**labels}, annotations={**notes}) for number in range(count)]
    for number, tree in enumerate(pods):
        tree["metadata"]["creationTimestamp"] = f"2026-03-01T10:00:0{number}Z"
    return pods


@EVERY_FORM
@pytest.mark.parametrize("question", ["podgroup/ring", "ring", "team/ring"])
def test_why_can_be_asked_by_the_name_that_the_hold_shows(question: str, form: GroupForm) -> None:
    answer = why(evidence([node("n", 8), *announced(2, "3", form)]), question, "", NOW)
    assert (answer.subject, answer.code) == ("group team/ring", "GANG_INCOMPLETE")
    assert "2 of 3 pods of group team/ring exist" in answer.headline


def engine_says(objects: list[Unstructured]) -> dict[str, str]:
    plan, _ = plan_objects([decode_object(copy.deepcopy(obj)) for obj in objects], Settings(), NOW)
    return {hold.workload: hold.verdict.detail for hold in plan.holds}


def check_says(objects: list[Unstructured]) -> list[str]:
    manifests = read_manifests([STDIN], yaml.safe_dump_all(objects))
    context, check = CheckContext(manifests, None, 0, Settings()), RULES["gang-complete"].check
    return [found.message for manifest in manifests for found in check(manifest, context)]


@EVERY_FORM
@pytest.mark.parametrize(
    ("total", "held", "checked"),
    [
        (None, {"team/ring": "is missing: set it on every pod"}, "so none of its pods starts"),
        ("two", {"team/ring": "is 'two', which is not a number of pods"}, "must be the number of pods"),
        ("0", {"team/ring": "is '0', which is not a number of pods"}, "must be the number of pods"),
        ("4", {"team/ring": "3 of 4 pods of group team/ring exist"}, "has 3 of 4 members, so it waits for the rest"),
        ("3", {}, ""),
        (
            "2",
            {"team/p2": "has 3 pods; delete this pod"},
            "1 pod(s) more than 2, so the youngest",
        ),
    ],
)
def test_check_says_of_an_announced_group_what_the_engine_does(
    total: str | None, held: dict[str, str], checked: str, form: GroupForm
) -> None:
    pods = announced(3, total, form)
    said = engine_says([node("n", 8), *pods])
    assert said.keys() == held.keys()
    assert all(words in said[key] for key, words in held.items())
    assert bool(check_says(pods)) == bool(checked)
    assert all(checked in message for message in check_says(pods))


@EVERY_FORM
@pytest.mark.parametrize(("labels", "total"), [({"kueue.x-k8s.io/queue-name": "other"}, "2"), ({}, "3")])
def test_check_says_that_members_disagree_as_the_engine_does(
    labels: dict[str, str], total: str, form: GroupForm
) -> None:
    first, second = announced(2, "2", form)
    metadata = second["metadata"]
    metadata["labels"] = metadata["labels"] | labels
    metadata["annotations"] = metadata["annotations"] | {form.size_annotation: total}
    (held,) = engine_says([node("n", 8), first, second]).values()
    (said,) = check_says([first, second])
    assert said.removesuffix(", so that none of them starts") in held
    assert "different" in said


def test_check_counts_members_that_name_the_group_in_an_annotation() -> None:
    first, second = announced(2, "2")
    second["metadata"]["labels"] = {}
    second["metadata"]["annotations"][KUEUE] = "ring"
    assert check_says([first, second]) == []
    assert engine_says([node("n", 8), first, second]) == {}


def job_of_group(name: str, count: int, total: str, form: GroupForm) -> Unstructured:
    metadata = announced(1, total, form)[0]["metadata"]
    template = {"metadata": {key: metadata[key] for key in ("labels", "annotations")}, "spec": pod("p", 1)["spec"]}
    spec = {"parallelism": count, "completions": count, "template": template}
    return thing("Job", name, spec, "batch/v1")


@EVERY_FORM
def test_check_counts_the_pods_of_templates(form: GroupForm) -> None:
    (short,) = check_says([job_of_group("job", 2, "3", form)])
    assert "has 2 of 3 members" in short
    assert check_says([*announced(1, "4", form), job_of_group("job", 3, "4", form)]) == []
    assert "must be the number of pods" in check_says([job_of_group("job", 2, "two", form)])[0]


@EVERY_FORM
def test_check_counts_pods_of_a_submitted_job_once(form: GroupForm) -> None:
    running = announced(2, "2", form)
    for tree in running:
        tree["metadata"]["ownerReferences"] = [{"apiVersion": "batch/v1", "kind": "Job", "name": "job"}]
    manifests = read_manifests([STDIN], yaml.safe_dump(job_of_group("job", 2, "2", form)))
    context = CheckContext(manifests, evidence(running), 0, Settings())
    assert not list(RULES["gang-complete"].check(manifests[0], context))


@EVERY_FORM
def test_check_finds_a_size_without_a_name(form: GroupForm) -> None:
    (said,) = check_says([pod("p", 1, annotations={form.size_annotation: "2"})])
    assert said == f"has {form.size_annotation}, but names no group: each pod starts on its own"


def test_pod_groups_of_one_name_are_kept_apart() -> None:
    """Four schedulers have a kind PodGroup: a pod's queue is that of its own one, whichever was read first."""
    volcano = thing("PodGroup", "ring", {"queue": "blue"}, "scheduling.volcano.sh/v1beta1")
    other = thing("PodGroup", "ring", {"minMember": 2}, "scheduling.x-k8s.io/v1alpha1")
    for groups in ([volcano, other], [other, volcano]):
        known = evidence([*groups, marked({("annotations", "scheduling.k8s.io/group-name"): "ring"}, owned=False)])
        (item,) = known.of_kind("Pod")
        found = pod_group_of(known, item)
        assert found is not None
        assert found.api_version == "scheduling.volcano.sh/v1beta1"
        assert len(known.of_kind("PodGroup")) == 2


def test_a_pod_group_of_another_api_is_not_the_pods_group() -> None:
    group = thing("PodGroup", "ring", {"minMember": 8}, "scheduling.volcano.sh/v1beta1")
    pods = [pod(f"p{number}", 1, labels={"scheduling.x-k8s.io/pod-group": "ring"}) for number in range(2)]
    assert check_says([group, *pods]) == []
    group["apiVersion"] = "scheduling.x-k8s.io/v1alpha1"
    assert "needs at least 8 pods, but only 2" in check_says([group, *pods])[0]


def test_a_pod_is_not_held_by_a_job_of_its_name() -> None:
    member = pod("x", 1, labels={KUEUE: "g"}, annotations={"kueue.x-k8s.io/pod-group-total-count": "2"})
    template = {"spec": {"containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]}}
    spec = {"suspend": True, "parallelism": 1, "completions": 1, "template": template}
    job = thing("Job", "x", spec, "batch/v1", labels={"kueue.x-k8s.io/queue-name": "nowhere"})
    seen = evidence([node("n", 8), member, job])
    asked = {name: why(seen, name, member["metadata"]["namespace"], NOW).chain[0].code for name in ("pod/x", "job/x")}
    assert asked == {"pod/x": "GANG_INCOMPLETE", "job/x": "KUEUE_QUEUE_MISSING"}
