"""Status writes to Workloads that were sent and are not on the watch yet: until then every decision counts them.

`apply` of a plan takes a moment, and the next decision doesn't wait for it. An admission that only the server knows of
would have its quota given away a second time; a workload whose eviction is under way would be taken for one that
stays. `apply.admission` says what it sends and what became of it; `scheduler.cache` lays it over what the informers
say of the object, until they show the same or something newer.
"""

from __future__ import annotations

import msgspec

from windlass.model.kueue import WorkloadObject
from windlass.model.kueue.workload_wire import AdmissionStatus, Condition


class AssumedStatus(msgspec.Struct, eq=False):
    """One write, from when it is sent."""

    observed: WorkloadObject
    """As the watch shows it."""
    assumed: WorkloadObject
    """As decisions see it."""
    is_admission: bool
    """Whether it is an admission, or else an eviction."""
    base_version: int
    """The version that the write was made on; the watch may still be behind it."""
    written_version: int = 0
    """The version that the write made; 0 until the server has answered."""

    def is_confirmed_by(self, thing: WorkloadObject) -> bool:
        if thing.metadata.uid != self.observed.metadata.uid:
            return True  # another object of the same name
        at = parse_resource_version(thing.metadata.resource_version)
        if self.written_version:
            return at >= self.written_version
        return at >= self.base_version and (thing.status.admission is not None) == self.is_admission


class AssumedStatuses:
    def __init__(self) -> None:
        self._sent: dict[str, AssumedStatus] = {}

    def assume(self, known: WorkloadObject, assumed: WorkloadObject, *, is_admission: bool) -> AssumedStatus:
        """`known` is what the write was made on, an earlier assumption included; `shown` what decisions see now."""
        before = self._sent.get(known.key)
        seen = known if before is None else before.observed
        after = max(
            parse_resource_version(known.metadata.resource_version), before.written_version if before else 0
        )
        self._sent[known.key] = made = AssumedStatus(seen, assumed, is_admission, after)
        return made

    def is_pending(self, sent: AssumedStatus) -> bool:
        """Whether the watch has shown neither it nor anything newer."""
        return self._sent.get(sent.observed.key) is sent

    def finish(self, sent: AssumedStatus, version: str) -> WorkloadObject | None:
        """The server has written it, as this version; the object as the watch shows it, if that is newer already."""
        sent.written_version = parse_resource_version(version)
        known = parse_resource_version(sent.observed.metadata.resource_version)
        return self.revert(sent) if sent.written_version and known >= sent.written_version else None

    def revert(self, sent: AssumedStatus) -> WorkloadObject | None:
        """It was refused: the object as the watch shows it; None where that is known already."""
        return self._sent.pop(sent.observed.key).observed if self.is_pending(sent) else None

    def forget(self, key: str) -> None:
        """The object is gone."""
        self._sent.pop(key, None)

    def overlay(self, thing: WorkloadObject) -> WorkloadObject:
        """The object as the watch shows it, with what was sent."""
        sent = self._sent.get(thing.key)
        if sent is None or thing is sent.assumed:
            return thing
        if sent.is_confirmed_by(thing):
            del self._sent[thing.key]
            return thing
        sent.observed = thing
        status = sent.assumed.status
        sent.assumed = with_status(thing, status.admission, status.conditions)
        return sent.assumed


def with_status(
    thing: WorkloadObject, admission: AdmissionStatus | None, conditions: tuple[Condition, ...]
) -> WorkloadObject:
    status = msgspec.structs.replace(thing.status, admission=admission, conditions=conditions)
    return msgspec.structs.replace(thing, status=status)


def parse_resource_version(version: str) -> int:
    """Versions of one object only grow; 0 for what is none."""
    return int(version) if version.isascii() and version.isdigit() else 0
