"""The protocol through which `apply` reads the cluster and reports what it sends; `scheduler.cache` implements it.

Writes are assumed in the cache, so that the next decision counts them; their outcomes are reported to it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Protocol

from windlass.apply.assumed_status import AssumedStatus
from windlass.cluster.delta import Assume, Delta
from windlass.model.kueue import WorkloadObject
from windlass.model.owners import Owner, OwnerObject
from windlass.model.pod import Pod
from windlass.model.volume import PersistentVolumeClaim


class ClusterCache(Protocol):
    on_pod_deleted: Callable[[str], None]
    """Called with the key of a deleted pod."""

    # Objects

    @property
    def pods(self) -> Mapping[str, Pod]: ...

    @property
    def nodes(self) -> Collection[str]: ...

    @property
    def assumed(self) -> Mapping[str, str]: ...

    @property
    def kueue_is_live(self) -> bool: ...

    @property
    def object_count(self) -> int: ...

    def get(self, kind: str, key: str, group: str = "") -> Any: ...

    def persistent_volume_claim(self, key: str) -> PersistentVolumeClaim | None: ...

    def disruption_budget_of(self, pod: Pod) -> str: ...

    def queued_owners(self) -> list[OwnerObject]: ...

    def workload_key_of(self, owner: OwnerObject) -> str: ...

    def priority_of(self, owner: Owner) -> int: ...

    # Responsibility

    def is_responsible_for(self, pod: Pod) -> bool: ...

    def is_responsible_for_owner(self, owner: Owner) -> bool: ...

    def is_taken_over(self, namespace: str, queue: str) -> bool: ...

    # Writes and their outcomes

    def drain_inbox(self) -> None: ...

    def push(self, deltas: Sequence[Delta]) -> None: ...

    def assume(self, assumed: Sequence[Assume]) -> None: ...

    def nominate(self, nominated: Mapping[str, str]) -> None: ...

    def start_backoff(self, key: str) -> None: ...

    def end_backoff(self, key: str) -> None: ...

    def assume_status(self, known: WorkloadObject, assumed: WorkloadObject, *, is_admission: bool) -> AssumedStatus: ...

    def finish_status(self, sent: AssumedStatus, version: str) -> None: ...

    def forget_status(self, sent: AssumedStatus) -> None: ...

    def is_unconfirmed(self, sent: AssumedStatus) -> bool: ...
