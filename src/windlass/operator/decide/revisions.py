"""Which DaemonSets of drivers and agents a stack needs now: one for each version that a node runs or shall run.

Called by `decide.main`. One that nothing refers to any more is deleted; those of other stacks are left alone.
"""

from __future__ import annotations

from windlass.model.unstructured import Unstructured
from windlass.operator.decide import components
from windlass.operator.decide.agent_daemon_set import agent_daemon_set, agent_daemon_set_name
from windlass.operator.decide.driver_daemon_set import daemon_set_name, driver_daemon_set
from windlass.operator.decide.pool import Pool
from windlass.operator.writes import ApplyDaemonSet, DeleteDaemonSet

_NAMES = {"driver": daemon_set_name, "agent": agent_daemon_set_name}


def put_daemon_sets(pool: Pool) -> None:
    stack, known = pool.stack, pool.observed.daemon_sets
    if not pool.nodes:
        return
    needed = {
        name(stack.name, version): (component, version)
        for component, name in _NAMES.items()
        for version in sorted(versions(pool, component) - {""})
    }
    for name, (component, version) in needed.items():
        body = _body(pool, component, version) if name not in known else None
        if body is not None:
            pool.writes.append(ApplyDaemonSet(name, body))
    for name, found in known.items():
        if found.stack == stack.name and name not in needed:
            pool.writes.append(DeleteDaemonSet(name, found.uid))


def _body(pool: Pool, component: str, version: str) -> Unstructured | None:
    """None where nothing says what it should look like."""
    namespace = pool.observed.namespace
    if component == "driver":
        return driver_daemon_set(pool.stack, version, namespace) if pool.stack.spec.driver.image else None
    template = pool.observed.agent
    return agent_daemon_set(pool.stack.name, version, template, namespace) if template is not None else None


def versions(pool: Pool, component: str) -> set[str]:
    """That nodes run, that open records name, and that an unfinished change may still ask for."""
    wanted = {components.chosen(node, component) for node in pool.nodes.values()}
    wanted.add(components.current_value(pool.current, component))
    for status in pool.statuses.values():
        record = status.change
        if record is not None and not record.result and record.component == component:
            wanted |= {record.want, record.previous}
    for change in pool.changes:
        if change.status.component == component and change.is_unfinished:
            wanted |= {change.status.to, change.status.from_ or ""}
    return wanted
