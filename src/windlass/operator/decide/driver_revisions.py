"""Which DaemonSets of driver containers a stack needs now: one for each version that a node runs or shall run.

Called by `decide.main`. One that nothing refers to any more is deleted; those of other stacks are left alone.
"""

from __future__ import annotations

from windlass.model.names.windlass import DRIVER_REVISION_LABEL
from windlass.operator.decide.driver_daemon_set import daemon_set_name, driver_daemon_set
from windlass.operator.decide.pool import Pool
from windlass.operator.writes import ApplyDaemonSet, DeleteDaemonSet


def put_daemon_sets(pool: Pool) -> None:
    stack, known = pool.stack, pool.observed.daemon_sets
    if not stack.spec.driver.image or not pool.nodes:
        return
    names = {daemon_set_name(stack.name, version): version for version in sorted(_versions(pool) - {""})}
    for name, version in names.items():
        if name not in known:
            pool.writes.append(ApplyDaemonSet(name, driver_daemon_set(stack, version, pool.observed.namespace)))
    for name, found in known.items():
        if found.stack == stack.name and name not in names:
            pool.writes.append(DeleteDaemonSet(name, found.uid))


def _versions(pool: Pool) -> set[str]:
    """That nodes run, that open records name, and that an unfinished change may still ask for."""
    wanted = {node.labels.get(DRIVER_REVISION_LABEL, "") for node in pool.nodes.values()} | {pool.current.driver}
    for status in pool.statuses.values():
        record = status.change
        if record is not None and not record.result and record.component == "driver":
            wanted |= {record.want, record.previous}
    for change in pool.changes:
        if change.status.component == "driver" and change.is_unfinished:
            wanted |= {change.status.to, change.status.from_ or ""}
    return wanted
