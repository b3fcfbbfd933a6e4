"""The kinds that make pods, decoded and reduced to what a workload needs to know of them."""

from __future__ import annotations

from windlass.model.owners.normalise import Owner, OwnerPodSet, owner_from_object, template_pod
from windlass.model.owners.wire import OwnerObject

__all__ = ["Owner", "OwnerObject", "OwnerPodSet", "owner_from_object", "template_pod"]
