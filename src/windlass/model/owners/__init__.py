"""The kinds that own pods, reduced to what `cluster.workloads` needs of them."""

from __future__ import annotations

from windlass.model.owners.normalise import owner_from_object
from windlass.model.owners.owner import Owner, OwnerPodSet, template_pod
from windlass.model.owners.wire import OwnerObject

__all__ = ["Owner", "OwnerObject", "OwnerPodSet", "owner_from_object", "template_pod"]
