"""Rules about names that manifests write: labels, annotations and classes that nobody reads or that don't exist."""

from __future__ import annotations

import difflib
from collections.abc import Iterator

from windlass.diagnose.check.manifest import IGNORE_ANNOTATION, Manifest, PodView
from windlass.diagnose.check.rule import ERROR, WARNING, CheckContext, RuleFinding, rule
from windlass.diagnose.unstructured import nested_map, nested_maps, nested_string
from windlass.model.names import kueue, windlass
from windlass.model.names.kueue import KUEUE_PREFIX
from windlass.model.names.windlass import WINDLASS_PREFIX

BUILT_IN_CLASSES = ("system-cluster-critical", "system-node-critical")
LEAST_SIMILARITY = 0.85
"""Above it a name is taken for a misspelling; Kueue has more names than Windlass reads, and they are further off."""


def _names(prefix: str) -> dict[str, str]:
    """Without the prefix → the name, of all names that Windlass reads or writes."""
    constants = (*vars(windlass).values(), *vars(kueue).values(), IGNORE_ANNOTATION)
    names = [value for value in constants if isinstance(value, str) and value.startswith(prefix)]
    return {name.removeprefix(prefix): name for name in names if name != prefix}


KNOWN_NAMES = {prefix: _names(prefix) for prefix in (WINDLASS_PREFIX, KUEUE_PREFIX)}


@rule("known-names", WARNING, "Labels and annotations of Windlass and Kueue are spelled as they are read")
def known_names(manifest: Manifest, context: CheckContext) -> Iterator[RuleFinding]:
    objects = {"": manifest.data} | {view.field_path(""): view.template for view in manifest.pods}
    for path, tree in objects.items():
        for field in ("metadata.labels", "metadata.annotations"):
            for name in nested_map(tree, *field.split(".")):
                meant = _meant(name)
                if meant:
                    yield RuleFinding(f"{name} is read by nobody", f"{path}{field}.{name}", f"write {meant}")


def _meant(name: str) -> str:
    """The name that it is a misspelling of; empty if it is none."""
    for prefix, known in KNOWN_NAMES.items():
        own = name.removeprefix(prefix)
        if name.startswith(prefix) and own not in known:
            near = difflib.get_close_matches(own, known, 1, LEAST_SIMILARITY)
            return known[near[0]] if near else ""
    return ""


@rule("priority-class-exists", ERROR, "The pod's priority class exists")
def priority_class_exists(manifest: Manifest, context: CheckContext) -> Iterator[RuleFinding]:
    if context.evidence is None or not context.evidence.has_kind("PriorityClass"):
        return
    known = {item.name for item in context.evidence.of_kind("PriorityClass")}
    known |= {other.name for other in context.of_kind("PriorityClass")}
    for view in manifest.pods:
        name = nested_string(view.spec, "priorityClassName")
        if name and name not in known and name not in BUILT_IN_CLASSES:
            yield RuleFinding(
                f"priority class {name} does not exist",
                view.field_path("spec.priorityClassName"),
                f"there are: {', '.join(sorted(known)) or 'none'}",
            )


@rule("pull-secret-exists", WARNING, "The secrets that the pod's images are pulled with exist")
def pull_secret_exists(manifest: Manifest, context: CheckContext) -> Iterator[RuleFinding]:
    known = context.evidence.secrets if context.evidence is not None else {}
    made = {f"{other.namespace}/{other.name}" for other in context.of_kind("Secret")}
    for view in manifest.pods:
        for place, name in enumerate(pull_secrets(view)):
            key = f"{manifest.namespace}/{name}"
            if known.get(key) is False and key not in made:
                message = f"pull secret {name} does not exist in namespace {manifest.namespace}"
                fix = f"kubectl create secret docker-registry {name} -n {manifest.namespace} …, or correct the name"
                yield RuleFinding(message, view.field_path(f"spec.imagePullSecrets[{place}].name"), fix)


def pull_secrets(view: PodView) -> list[str]:
    """The names that the pod itself gives; those of its service account are the cluster's."""
    return [nested_string(row, "name") for row in nested_maps(view.spec, "imagePullSecrets")]
