"""Rules about gangs: enough members, and numbers that agree."""

from __future__ import annotations

import re
from collections.abc import Iterator

from windlass.diagnose.check.manifest import Manifest, PodView
from windlass.diagnose.check.pod_counts import pod_count
from windlass.diagnose.check.rule import ERROR, WARNING, CheckContext, RuleFinding, rule
from windlass.diagnose.unstructured import (
    nested,
    nested_int,
    nested_map,
    nested_maps,
    nested_string,
    nested_strings,
)
from windlass.model.names.kueue import (
    MIN_PARALLELISM_ANNOTATION,
    POD_GROUP_NAME_LABEL,
    POD_GROUP_TOTAL_COUNT_ANNOTATION,
)
from windlass.model.names.nvidia import NVIDIA_PREFIX
from windlass.model.names.others import (
    COSCHEDULING_LABEL,
    COSCHEDULING_OLD_LABEL,
    VOLCANO_GROUP_ANNOTATION,
    VOLCANO_QUALIFIED_GROUP_ANNOTATION,
)

GROUP_LABELS = (COSCHEDULING_LABEL, COSCHEDULING_OLD_LABEL)
GROUP_ANNOTATIONS = (VOLCANO_GROUP_ANNOTATION, VOLCANO_QUALIFIED_GROUP_ANNOTATION)
NODES_FLAG = re.compile(r"--nnodes[= ](\d+)(?![\d:])")
PROCESSES_FLAG = re.compile(r"--nproc[-_]per[-_]node[= ](\d+)\b")


@rule("gang-complete", ERROR, "A gang has all its members, and its numbers agree")
def gang_complete(manifest: Manifest, context: CheckContext) -> Iterator[RuleFinding]:
    yield from _kueue_group(manifest, context)
    yield from _pod_group(manifest, context)
    yield from _minimum(manifest)


def _kueue_group(manifest: Manifest, context: CheckContext) -> Iterator[RuleFinding]:
    """Kueue's pod groups: pods with a label, each with the total number of pods."""
    name = nested_string(manifest.data, "metadata", "labels", POD_GROUP_NAME_LABEL)
    if manifest.kind != "Pod" or not name:
        return
    total = nested(manifest.data, "metadata", "annotations", POD_GROUP_TOTAL_COUNT_ANNOTATION)
    where = f"metadata.annotations.{POD_GROUP_TOTAL_COUNT_ANNOTATION}"
    if total is None:
        yield RuleFinding(
            f"is in the group {name} without the annotation {POD_GROUP_TOTAL_COUNT_ANNOTATION}, "
            "so it is never admitted",
            "metadata.annotations",
            f"set {POD_GROUP_TOTAL_COUNT_ANNOTATION} to the number of its pods, as a string",
        )
        return
    if not isinstance(total, str) or not total.isdigit() or int(total) < 1:
        yield RuleFinding(
            f"{POD_GROUP_TOTAL_COUNT_ANNOTATION} is {total!r}, and must be the number of pods as a string",
            where,
        )
        return
    members = [pod for pod in context.of_kind("Pod") if _is_of_group(pod, manifest.namespace, name)]
    if manifest is not members[0]:
        return  # reported once per group
    present = len(members) + _running_members(context, manifest.namespace, name, members)
    if present != int(total):
        few = "so it waits for the rest" if present < int(total) else "so the group is refused as a whole"
        yield RuleFinding(
            f"group {name} has {present} of {total} members, {few}", where, "make the two numbers agree"
        )


def _is_of_group(manifest: Manifest, namespace: str, name: str) -> bool:
    return (
        manifest.namespace == namespace
        and nested_string(manifest.data, "metadata", "labels", POD_GROUP_NAME_LABEL) == name
    )


def _running_members(context: CheckContext, namespace: str, name: str, submitted: list[Manifest]) -> int:
    if context.evidence is None:
        return 0
    names = {manifest.name for manifest in submitted}
    return sum(
        item.namespace == namespace
        and item.labels.get(POD_GROUP_NAME_LABEL) == name
        and item.name not in names
        for item in context.evidence.of_kind("Pod")
    )


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
    members = [
        pod_count(other_manifest, view)
        for other_manifest in context.manifests
        for view in other_manifest.pods
        if other_manifest.namespace == manifest.namespace and manifest.name in _groups_of(view)
    ]
    if minimum and members and sum(members) < minimum:
        yield RuleFinding(
            f"needs at least {minimum} pods, but only {sum(members)} are created for it, so none of them starts",
            path,
            "lower the minimum, or create more pods",
        )


def _groups_of(view: PodView) -> set[str]:
    labels = nested_map(view.template, "metadata", "labels")
    annotations = nested_map(view.template, "metadata", "annotations")
    named = [labels.get(key) for key in GROUP_LABELS] + [annotations.get(key) for key in GROUP_ANNOTATIONS]
    named.append(nested_string(view.spec, "schedulingGroup", "podGroupName"))
    return {name for name in named if isinstance(name, str) and name}


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
    if least.isdigit() and int(least) > parallelism:
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
            command_line = " ".join(
                word for part in ("command", "args") for word in nested_strings(container, part)
            )
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
