"""Gives workloads of one name different keys: decisions name a workload by `namespace/name`.

`workload_index` calls it where a name is shared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from windlass.model.workload import Workload

WorkloadSortKey = tuple[int, str, str, str, int, int]
"""Oldest first, then by key, kind, source, gang and part."""
_NAME_PRECEDENCE = {"Workload": 0, "Pod": 1}
"""Kind → which of several workloads of one name keeps it; the lowest does."""


def with_unique_keys(workloads: list[Workload], sort_keys: Sequence[WorkloadSortKey]) -> Sequence[Workload]:
    """Where several have the same name, a Workload object or a pod keeps it, since it is looked up by name; the others
    get their kind as a suffix, and the source where kinds are equal."""
    keeper: dict[str, Workload] = {}
    duplicates = [item for item in workloads if keeper.setdefault(item.key, item) is not item]
    for workload in duplicates:
        if _NAME_PRECEDENCE.get(workload.kind, 2) < _NAME_PRECEDENCE.get(keeper[workload.key].kind, 2):
            keeper[workload.key] = workload
    renamed = Counter((item.key, item.kind) for item in workloads if keeper[item.key] is not item)
    unique: list[Workload] = []
    for item, (_, key, kind, source, *_) in zip(workloads, sort_keys, strict=True):
        suffix = f"{kind.lower()}.{source}" if renamed[key, kind] > 1 else kind.lower()
        is_keeper = keeper[key] is item
        unique.append(item if is_keeper else msgspec.structs.replace(item, key=f"{key}.{suffix}"))
    return unique
