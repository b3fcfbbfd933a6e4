"""Assumed statuses of Workloads: writes that were sent and that the watch has not shown yet.

The next decision doesn't wait for the writes of the last plan. Without the assumption, the quota of an admission under
way would be given away twice, and a second victim would be chosen while an eviction is under way. `apply.admission`
reports what it sends and the outcome; `scheduler.cache` lays the assumed status over the observed object until the
watch shows the same or something newer.
"""

from __future__ import annotations

import msgspec

from windlass.model.kueue import WorkloadObject
from windlass.model.kueue.workload_wire import AdmissionStatus, Condition


class AssumedStatus(msgspec.Struct, eq=False):
    """One write, from when it is sent until the watch shows it."""

    observed: WorkloadObject
    """The Workload as the watch shows it."""
    assumed: WorkloadObject
    """The Workload as decisions see it."""
    is_admission: bool
    """An admission if true, else an eviction."""
    base_version: int
    """resourceVersion on which the write was based; the watch may be behind it."""
    written_version: int = 0
    """resourceVersion of the write; 0 until the server has answered."""

    def is_confirmed_by(self, obj: WorkloadObject) -> bool:
        if obj.metadata.uid != self.observed.metadata.uid:
            return True  # another object of the same name
        version = parse_resource_version(obj.metadata.resource_version)
        if self.written_version:
            return version >= self.written_version
        # The watch may show the write before its answer arrives; then the admission is the only sign.
        is_shown = (obj.status.admission is not None) == self.is_admission
        if self.is_admission:
            is_shown = is_shown and _admitted_pods(obj) >= _admitted_pods(self.assumed)
        return version >= self.base_version and is_shown


class AssumedStatuses:
    def __init__(self) -> None:
        self._pending: dict[str, AssumedStatus] = {}

    def assume(self, known: WorkloadObject, assumed: WorkloadObject, *, is_admission: bool) -> AssumedStatus:
        """`known` is the object on which the write is based, with an earlier assumption if there is one."""
        previous = self._pending.get(known.key)
        observed = known if previous is None else previous.observed
        base_version = max(
            parse_resource_version(known.metadata.resource_version),
            previous.written_version if previous else 0,
        )
        sent = AssumedStatus(observed, assumed, is_admission, base_version)
        self._pending[known.key] = sent
        return sent

    def recorded(self, obj: WorkloadObject) -> WorkloadObject:
        """The Workload without an admission that the server has not answered yet."""
        sent = self._pending.get(obj.key)
        return sent.observed if sent is not None and sent.is_admission and not sent.written_version else obj

    def is_pending(self, sent: AssumedStatus) -> bool:
        """Whether the watch has shown neither this write nor a newer one."""
        return self._pending.get(sent.observed.key) is sent

    def finish(self, sent: AssumedStatus, version: str) -> WorkloadObject | None:
        """The server has accepted the write, with this resourceVersion. If the watch shows it or a newer one already,
        ends the assumption and returns the observed object."""
        sent.written_version = parse_resource_version(version)
        observed_version = parse_resource_version(sent.observed.metadata.resource_version)
        return self.revert(sent) if sent.written_version and observed_version >= sent.written_version else None

    def revert(self, sent: AssumedStatus) -> WorkloadObject | None:
        """Ends the assumption and returns the observed object; None if it had ended before."""
        return self._pending.pop(sent.observed.key).observed if self.is_pending(sent) else None

    def forget(self, key: str) -> None:
        """The Workload was deleted."""
        self._pending.pop(key, None)

    def overlay(self, obj: WorkloadObject) -> WorkloadObject:
        """The observed object with the assumed status; ends the assumption if the object confirms it."""
        sent = self._pending.get(obj.key)
        if sent is None or obj is sent.assumed:
            return obj
        if sent.is_confirmed_by(obj):
            del self._pending[obj.key]
            return obj
        sent.observed = obj
        status = sent.assumed.status
        sent.assumed = with_status(obj, status.admission, status.conditions)
        return sent.assumed


def _admitted_pods(obj: WorkloadObject) -> int:
    assignments = obj.status.admission.pod_set_assignments if obj.status.admission is not None else ()
    return sum(assignment.count or 0 for assignment in assignments)


def with_status(
    obj: WorkloadObject, admission: AdmissionStatus | None, conditions: tuple[Condition, ...]
) -> WorkloadObject:
    status = msgspec.structs.replace(obj.status, admission=admission, conditions=conditions)
    return msgspec.structs.replace(obj, status=status)


def parse_resource_version(version: str) -> int:
    """Versions of one object only grow; 0 for a version that is no number."""
    return int(version) if version.isascii() and version.isdigit() else 0
