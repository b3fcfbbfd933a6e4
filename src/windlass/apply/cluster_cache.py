"""The protocol through which `apply` reads the cluster and reports what it sends; `scheduler.cache` implements it.

Writes are assumed in the cache, so that the next decision counts them; their outcomes are reported to it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Protocol

from windlass.apply.assumed_status import AssumedStatus
from windlass.cluster.delta import Assume, Delta
from windlass.model.configuration import Settings
from windlass.model.kueue import WorkloadObject
from windlass.model.owners import Owner, OwnerObject
from windlass.model.pod import Pod
from windlass.model.volume import PersistentVolumeClaim


class QueuedOwners(Protocol):
    """Owners with a queue name whose pods are ours (`scheduler.queued_owners`)."""

    def get(self, owner: tuple[str, str]) -> OwnerObject | None: ...

    def has_parent(self, owner: OwnerObject) -> bool: ...

    def pop_changed(self) -> Iterable[tuple[str, str]]: ...

    def workload_key_of(self, owner: OwnerObject) -> str: ...


class Responsibility(Protocol):
    """What this scheduler decides on (`scheduler.responsibility`)."""

    def covers(self, pod: Pod) -> bool: ...

    def covers_owner(self, owner: Owner) -> bool: ...

    def admits_to(self, namespace: str, queue: str) -> bool: ...


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
    def settings(self) -> Settings: ...

    @property
    def object_count(self) -> int: ...

    def get(self, kind: str, key: str, group: str = "") -> Any: ...

    def persistent_volume_claim(self, key: str) -> PersistentVolumeClaim | None: ...

    def disruption_budget_of(self, pod: Pod) -> str: ...

    @property
    def owners(self) -> QueuedOwners: ...

    def priority_of(self, owner: Owner) -> int: ...

    @property
    def responsibility(self) -> Responsibility: ...

    # Writes and their outcomes

    def drain_inbox(self) -> None: ...

    def push(self, deltas: Sequence[Delta]) -> None: ...

    def assume(self, assumed: Sequence[Assume]) -> None: ...

    def nominate(self, workloads: frozenset[str], nominated: Mapping[str, str]) -> None: ...

    def request_decision(self) -> None: ...

    def start_backoff(self, key: str) -> None: ...

    def end_backoff(self, key: str) -> None: ...

    def assume_status(self, known: WorkloadObject, assumed: WorkloadObject, *, is_admission: bool) -> AssumedStatus: ...

    def finish_status(self, sent: AssumedStatus, version: str) -> None: ...

    def forget_status(self, sent: AssumedStatus) -> None: ...

    def recorded_workload(self, key: str) -> WorkloadObject | None: ...

    def is_unconfirmed(self, sent: AssumedStatus) -> bool: ...
