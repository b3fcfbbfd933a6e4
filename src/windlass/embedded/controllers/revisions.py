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
from windlass.model.names.kubernetes import APPS_API_VERSION
from windlass.model.unstructured import Unstructured

CONTROLLER_REVISIONS = "controllerrevisions.apps"
REVISION_HASH_LABEL = "controller-revision-hash"
_CAUSE = "kubernetes.io/change-cause"


def revision_data(owner: Unstructured) -> Unstructured:
    """What a rollback patches back."""
    return {"spec": {"template": {**owner["spec"]["template"], "$patch": "replace"}}}


def sync_revision(plan: ReconcileResultBuilder, owner: Unstructured, known: Sequence[Unstructured]) -> tuple[str, str]:
    """`(name, hash)` of the current template's revision, which is created or renumbered as the newest if necessary."""
    data = revision_data(owner)
    newest = max((int(item.get("revision") or 0) for item in known), default=0)
    for item in known:
        if item.get("data") == data:
            if int(item.get("revision") or 0) < newest:
                plan.add(Patch(CONTROLLER_REVISIONS, item, {"revision": newest + 1}))
            return name_of(item), labels_of(item).get(REVISION_HASH_LABEL, name_of(item).rpartition("-")[2])
    digest = template_hash(owner["spec"]["template"])
    taken = {name_of(item) for item in known}
    collisions = 0
    while f"{name_of(owner)}-{digest}" in taken:
        collisions += 1
        digest = template_hash(owner["spec"]["template"], collisions)
    new = _revision(owner, digest, newest + 1, data)
    plan.add(Create(CONTROLLER_REVISIONS, owner, new, suppress_event=True))
    return name_of(new), digest


def _revision(owner: Unstructured, template_digest: str, number: int, data: Unstructured) -> Unstructured:
    labels = (owner["spec"]["template"].get("metadata") or {}).get("labels") or {}
    metadata: Unstructured = {
        "name": f"{name_of(owner)}-{template_digest}",
        "namespace": namespace_of(owner),
        "labels": {**labels, REVISION_HASH_LABEL: template_digest},
        "ownerReferences": [owner_reference(owner)],
    }
    cause = annotations_of(owner).get(_CAUSE)
    if cause:
        metadata["annotations"] = {_CAUSE: cause}
    return {
        "apiVersion": APPS_API_VERSION,
        "kind": "ControllerRevision",
        "metadata": metadata,
        "data": data,
        "revision": number,
    }


def truncate_history(
    plan: ReconcileResultBuilder, owner: Unstructured, known: Sequence[Unstructured], in_use: Iterable[str]
) -> None:
    """Deletes the oldest unused revisions beyond revisionHistoryLimit."""
    limit = owner["spec"].get("revisionHistoryLimit")
    used = set(in_use)
    idle = [
        revision
        for revision in known
        if name_of(revision) not in used and labels_of(revision).get(REVISION_HASH_LABEL, "") not in used
    ]
    surplus = len(idle) - (10 if limit is None else int(limit))
    ranked = sorted(idle, key=lambda revision: int(revision.get("revision") or 0))
    plan.add(*(Delete(CONTROLLER_REVISIONS, revision) for revision in ranked[: max(0, surplus)]))
