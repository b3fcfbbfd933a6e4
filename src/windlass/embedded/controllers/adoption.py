"""Which children are whose: an owner keeps those that its selector matches, lets others go, and takes in orphans."""

from __future__ import annotations

from collections.abc import Iterable

from windlass.embedded.controllers.objects import (
    controller_of,
    is_deleting,
    labels_of,
    owner_reference,
    selector_matches,
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
    """The owner's children, and the patches that release strangers and adopt orphans."""
    mine: list[Unstructured] = []
    patches: list[Patch] = []
    for child in owned:
        reference = controller_of(child)
        if reference is None or reference.get("uid") != uid_of(owner):
            continue
        if selector_matches(selector, labels_of(child)):
            mine.append(child)
        elif not is_deleting(owner):
            patches.append(Patch(resource, child, _owners(child, _others(child, owner))))
    for child in orphans if not is_deleting(owner) else ():
        if selector_matches(selector, labels_of(child)) and not is_deleting(child):
            mine.append(child)
            owners = [*_others(child, owner), owner_reference(owner)]
            patches.append(Patch(resource, child, _owners(child, owners)))
    return mine, patches


def _others(child: Unstructured, owner: Unstructured) -> list[Unstructured]:
    references = child["metadata"].get("ownerReferences") or ()
    return [dict(each) for each in references if each.get("uid") != uid_of(owner)]


def _owners(child: Unstructured, owners: list[Unstructured]) -> Unstructured:
    return {"metadata": {"uid": uid_of(child), "ownerReferences": owners}}
