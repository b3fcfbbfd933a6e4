"""ControllerRevisions: the history of a StatefulSet's or DaemonSet's template, for `kubectl rollout history` and
`undo`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from windlass.embedded.controllers.objects import (
    annotations_of,
    labels_of,
    name_of,
    namespace_of,
    owner_reference,
)
from windlass.embedded.controllers.pod_template import template_hash
from windlass.embedded.controllers.reconcile_result import Create, Delete, Patch, ReconcileResultBuilder
from windlass.model.unstructured import Unstructured

CONTROLLER_REVISIONS = "controllerrevisions.apps"
REVISION_HASH_LABEL = "controller-revision-hash"
_CAUSE = "kubernetes.io/change-cause"


def revision_data(owner: Unstructured) -> Unstructured:
    """What a rollback patches back."""
    return {"spec": {"template": {**owner["spec"]["template"], "$patch": "replace"}}}


def sync_revision(
    plan: ReconcileResultBuilder, owner: Unstructured, known: Sequence[Unstructured]
) -> tuple[str, str]:
    """`(name, hash)` of the revision for the template as it is; made, or brought to the top, where need be."""
    data = revision_data(owner)
    newest = max((int(each.get("revision") or 0) for each in known), default=0)
    for each in known:
        if each.get("data") == data:
            if int(each.get("revision") or 0) < newest:
                plan.add(Patch(CONTROLLER_REVISIONS, each, {"revision": newest + 1}))
            return name_of(each), labels_of(each).get(REVISION_HASH_LABEL, name_of(each).rpartition("-")[2])
    digest = template_hash(owner["spec"]["template"])
    taken = {name_of(each) for each in known}
    tries = 0
    while f"{name_of(owner)}-{digest}" in taken:
        tries += 1
        digest = template_hash(owner["spec"]["template"], tries)
    made = _revision(owner, digest, newest + 1, data)
    plan.add(Create(CONTROLLER_REVISIONS, owner, made, suppress_event=True))
    return name_of(made), digest


def _revision(owner: Unstructured, digest: str, number: int, data: Unstructured) -> Unstructured:
    labels = (owner["spec"]["template"].get("metadata") or {}).get("labels") or {}
    metadata: Unstructured = {
        "name": f"{name_of(owner)}-{digest}",
        "namespace": namespace_of(owner),
        "labels": {**labels, REVISION_HASH_LABEL: digest},
        "ownerReferences": [owner_reference(owner)],
    }
    cause = annotations_of(owner).get(_CAUSE)
    if cause:
        metadata["annotations"] = {_CAUSE: cause}
    return {
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": metadata,
        "data": data,
        "revision": number,
    }


def truncate_history(
    plan: ReconcileResultBuilder, owner: Unstructured, known: Sequence[Unstructured], in_use: Iterable[str]
) -> None:
    """Beyond the limit, the oldest that nothing uses go."""
    limit = owner["spec"].get("revisionHistoryLimit")
    used = set(in_use)
    idle = [
        each
        for each in known
        if name_of(each) not in used and labels_of(each).get(REVISION_HASH_LABEL, "") not in used
    ]
    surplus = len(idle) - (10 if limit is None else int(limit))
    ranked = sorted(idle, key=lambda each: int(each.get("revision") or 0))
    plan.add(*(Delete(CONTROLLER_REVISIONS, each) for each in ranked[: max(0, surplus)]))
