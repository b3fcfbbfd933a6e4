"""Which children belong to an owner, as in Kubernetes' ControllerRefManager: an owner releases children that its
selector no longer matches and adopts matching orphans. Called by `workload_controllers`.
"""

from __future__ import annotations

from collections.abc import Iterable

from windlass.embedded.api.selectors import matches_selector
from windlass.embedded.controllers.objects import (
    controller_of,
    is_deleting,
    labels_of,
    owner_reference,
    uid_of,
)
from windlass.embedded.controllers.reconcile_result import Patch
from windlass.model.unstructured import Unstructured


def claim_children(
    owner: Unstructured,
    selector: Unstructured | None,
    resource: str,
    owned: Iterable[Unstructured],
    orphans: Iterable[Unstructured],
) -> tuple[list[Unstructured], list[Patch]]:
    """The owner's children, and the patches that release and adopt."""
    children: list[Unstructured] = []
    patches: list[Patch] = []
    for child in owned:
        reference = controller_of(child)
        if reference is None or reference.get("uid") != uid_of(owner):
            continue
        if matches_selector(selector, labels_of(child)):
            children.append(child)
        elif not is_deleting(owner):
            patches.append(Patch(resource, child, _owners_patch(child, other_references(child, owner))))
    for child in orphans if not is_deleting(owner) else ():
        if matches_selector(selector, labels_of(child)) and not is_deleting(child):
            children.append(child)
            owners = [*other_references(child, owner), owner_reference(owner)]
            patches.append(Patch(resource, child, _owners_patch(child, owners)))
    return children, patches


def other_references(child: Unstructured, owner: Unstructured) -> list[Unstructured]:
    references = child["metadata"].get("ownerReferences") or ()
    return [dict(reference) for reference in references if reference.get("uid") != uid_of(owner)]


def _owners_patch(child: Unstructured, owners: list[Unstructured]) -> Unstructured:
    return {"metadata": {"uid": uid_of(child), "ownerReferences": owners}}
