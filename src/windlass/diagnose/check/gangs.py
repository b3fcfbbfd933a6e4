"""Rules about gangs: enough members, and numbers that agree."""

from __future__ import annotations

import re
from collections.abc import Iterator

from windlass.diagnose.check.manifest import Manifest, PodView
from windlass.diagnose.check.pod_counts import pod_count
from windlass.diagnose.check.rule import ERROR, WARNING, CheckContext, RuleFinding, rule
from windlass.diagnose.evidence import ClusterObject, Evidence
from windlass.diagnose.subject import group_of, owners_of, phase_of
from windlass.diagnose.unstructured import (
    nested_int,
    nested_map,
    nested_maps,
    nested_string,
    nested_strings,
)
from windlass.model.digits import is_digits
from windlass.model.group_membership import (
    ANNOUNCED_FORMS,
    NATIVE,
    GroupMember,
    GroupReference,
    group_disagreement,
    group_reference,
)
from windlass.model.names.kueue import MIN_PARALLELISM_ANNOTATION
from windlass.model.names.nvidia import NVIDIA_PREFIX

NODES_FLAG = re.compile(r"--nnodes[= ](\d+)(?![\d:])")
PROCESSES_FLAG = re.compile(r"--nproc[-_]per[-_]node[= ](\d+)\b")


@rule("gang-complete", ERROR, "A gang has all its members, and its numbers agree")
def gang_complete(manifest: Manifest, context: CheckContext) -> Iterator[RuleFinding]:
    yield from _announced_group(manifest, context)
    yield from _pod_group(manifest, context)
    yield from _minimum(manifest)


def _announced_group(manifest: Manifest, context: CheckContext) -> Iterator[RuleFinding]:
    """Announced groups, such as Kueue's: pods, or templates, that name a group, each with the number of its pods."""
    if manifest.kind == "Workload":
        return  # Kueue copies the pods of a group into its Workload
    seen: set[GroupReference] = set()
    for view in manifest.pods:
        group = _group_of(view)
        if group is None:
            yield from _size_without_name(view)
        elif group.source in ANNOUNCED_FORMS and group not in seen:
            seen.add(group)
            yield from _announced_size(manifest, view, context, group)


def _size_without_name(view: PodView) -> Iterator[RuleFinding]:
    annotations = nested_map(view.template, "metadata", "annotations")
    for form in ANNOUNCED_FORMS.values():
        if form.size_annotation in annotations:
            name = (*form.labels, *form.annotations)[0]
            yield RuleFinding(
                f"has {form.size_annotation}, but names no group: each pod starts on its own",
                view.field_path(f"metadata.annotations.{form.size_annotation}"),
                f"name the group in {name} of every pod, or drop the annotation",
                WARNING,
            )


def _announced_size(
    manifest: Manifest, view: PodView, context: CheckContext, group: GroupReference
) -> Iterator[RuleFinding]:
    form = ANNOUNCED_FORMS[group.source]
    annotation, where = form.size_annotation, view.field_path(f"metadata.annotations.{form.size_annotation}")
    annotations = nested_map(view.template, "metadata", "annotations")
    value, total = annotations.get(annotation), form.size_in(annotations)
    if value is None:
        yield RuleFinding(
            f"is in the group {group.name} without the annotation {annotation}, so none of its pods starts",
            view.field_path("metadata.annotations"),
            f"set {annotation} to the number of its pods, as a string",
        )
    elif total is None:
        problem = f"{annotation} is {value!r}, and must be the number of pods as a string"
        yield RuleFinding(problem, where, 'set it on every pod of the group, as a string such as "4"')
    else:
        members = _members(context, manifest.namespace, group)
        if members[0][0] is manifest:  # reported once per group
            yield from _announced_members(context, members, group, where, total)


def _members(context: CheckContext, namespace: str, group: GroupReference) -> list[tuple[Manifest, PodView]]:
    """The pods and pod templates that name the group."""
    return [
        (manifest, view)
        for manifest in context.manifests
        if manifest.namespace == namespace and manifest.kind != "Workload"
        for view in manifest.pods
        if _group_of(view) == group
    ]


def _announced_members(
    context: CheckContext, members: list[tuple[Manifest, PodView]], group: GroupReference, where: str, total: int
) -> Iterator[RuleFinding]:
    remedy = "make the two numbers agree"
    disagreement = group_disagreement(ANNOUNCED_FORMS[group.source], [_member(*member) for member in members])
    problem, _, cure = disagreement.partition("; ")
    if problem:
        yield RuleFinding(f"{problem}, so that none of them starts", "metadata", cure)
        return
    present = sum(pod_count(*member) for member in members) + _running_members(context, members, group)
    name, excess = group.name, present - total
    if excess < 0:
        problem = f"group {name} has {present} of {total} members, so it waits for the rest"
        yield RuleFinding(problem, where, remedy)
    elif excess > 0:
        surplus = f"group {name} has {excess} pod(s) more than {total}, so the youngest never start"
        yield RuleFinding(surplus, where, remedy)


def _member(manifest: Manifest, view: PodView) -> GroupMember:
    metadata = (nested_map(view.template, "metadata", part) for part in ("labels", "annotations"))
    labels, annotations = (  # a value that is no text is another rule's finding
        {name: value for name, value in part.items() if isinstance(value, str)} for part in metadata
    )
    place = f" ({view.path})" if view.path else ""
    return GroupMember(f"{manifest.namespace}/{manifest.name}{place}", labels, annotations)


def _running_members(context: CheckContext, submitted: list[tuple[Manifest, PodView]], group: GroupReference) -> int:
    """Pods of the cluster that are members already, without those that the manifests describe."""
    if context.evidence is None:
        return 0
    namespace = submitted[0][0].namespace
    described = {(manifest.kind, manifest.name) for manifest, _ in submitted}
    return sum(
        item.namespace == namespace
        and group_of(item) == group
        and phase_of(item) != "Failed"
        and not nested_string(item.data, "metadata", "deletionTimestamp")
        and described.isdisjoint(_with_owners(context.evidence, item))
        for item in context.evidence.of_kind("Pod")
    )


def _with_owners(evidence: Evidence, pod: ClusterObject) -> Iterator[tuple[str, str]]:
    """Kind and name of the pod and of its owners, also where their objects are not known."""
    for item in (pod, *owners_of(evidence, pod)):
        yield item.kind, item.name
        yield from ((kind, name) for kind, name, _ in item.owners)


def _pod_group(manifest: Manifest, context: CheckContext) -> Iterator[RuleFinding]:
    """A PodGroup: the manifests must create at least its minimum of pods."""
    if manifest.kind != "PodGroup":
        return
    path, minimum = next(
        (
            (".".join(steps), nested_int(manifest.data, *steps))
            for steps in (("spec", "minMember"), ("spec", "schedulingPolicy", "gang", "minCount"))
            if nested_int(manifest.data, *steps)
        ),
        ("spec", 0),
    )
    api_group = nested_string(manifest.data, "apiVersion").rpartition("/")[0]
    group = GroupReference(api_group, manifest.name)  # type: ignore[arg-type]  # any group that a pod may name
    members = _members(context, manifest.namespace, group)
    if not members:
        return
    total = sum(pod_count(*member) for member in members) + _running_members(context, members, group)
    if minimum and total < minimum:
        # Pods of Kubernetes' own groups come from controllers that are not among the manifests.
        level = WARNING if api_group == NATIVE else ERROR
        yield RuleFinding(
            f"needs at least {minimum} pods, but only {total} are created for it, so none of them starts",
            path,
            "lower the minimum, or create more pods",
            level,
        )


def _group_of(view: PodView) -> GroupReference | None:
    labels, annotations = (nested_map(view.template, "metadata", part) for part in ("labels", "annotations"))
    return group_reference(labels, annotations, nested_string(view.spec, "schedulingGroup", "podGroupName"))


MINIMA = (
    ("spec", "minAvailable"),
    ("spec", "runPolicy", "schedulingPolicy", "minAvailable"),
    ("spec", "elasticPolicy", "minReplicas"),
)
"""Fields with the minimum number of pods, by kind of job."""


def _minimum(manifest: Manifest) -> Iterator[RuleFinding]:
    if not manifest.pods or manifest.kind == "PodDisruptionBudget":
        return
    total = sum(pod_count(manifest, view) for view in manifest.pods)
    for steps in MINIMA:
        minimum = nested_int(manifest.data, *steps)
        if minimum > total:
            yield RuleFinding(
                f"needs at least {minimum} pods but creates {total}, so it never starts",
                ".".join(steps),
                "lower the minimum, or create more pods",
            )
    least = nested_string(manifest.data, "metadata", "annotations", MIN_PARALLELISM_ANNOTATION)
    parallelism = nested_int(manifest.data, "spec", "parallelism") or 1
    if is_digits(least) and int(least) > parallelism:
        yield RuleFinding(
            f"needs at least {least} pods to start, but its parallelism is {parallelism}",
            f"metadata.annotations.{MIN_PARALLELISM_ANNOTATION}",
            "set it to at most spec.parallelism",
        )
    for place, group in enumerate(nested_maps(manifest.data, "spec", "workerGroupSpecs")):
        low, high = (nested_int(group, "minReplicas"), nested_int(group, "maxReplicas"))
        if high and low > high:
            path = f"spec.workerGroupSpecs[{place}].minReplicas"
            yield RuleFinding(
                f"minReplicas {low} is above maxReplicas {high}",
                path,
                "lower minReplicas, or raise maxReplicas",
            )


@rule("launcher-agrees", WARNING, "The launcher's arguments agree with pods and GPUs")
def launcher_agrees(manifest: Manifest, context: CheckContext) -> Iterator[RuleFinding]:
    total = sum(pod_count(manifest, view) for view in manifest.pods)
    for view in manifest.pods:
        for path, container in view.containers():
            command_line = " ".join(word for part in ("command", "args") for word in nested_strings(container, part))
            nodes, processes = NODES_FLAG.search(command_line), PROCESSES_FLAG.search(command_line)
            if nodes and int(nodes[1]) != total:
                yield RuleFinding(
                    f"the launcher waits for {nodes[1]} nodes, but {total} pods are created, so it never begins",
                    path,
                    "make --nnodes and the number of pods agree",
                )
            gpus = [
                nested_int({"n": amount}, "n")
                for name, amount in nested_map(container, "resources", "limits").items()
                if name.startswith(NVIDIA_PREFIX)
            ]
            if processes and gpus and int(processes[1]) > sum(gpus):
                yield RuleFinding(
                    f"starts {processes[1]} processes for {sum(gpus)} GPUs",
                    path,
                    "start as many processes as there are GPUs",
                )
