"""The status of a stack: what its nodes run, how many are ready, and whether that is what its spec says.

`decide.main` asks first what is current, and drafts the status when everything else of the stack has been decided.
"""

from __future__ import annotations

from collections import Counter

from windlass.model.names.windlass import DRIVER_REVISION_LABEL
from windlass.model.times import format_timestamp
from windlass.operator.decide import components
from windlass.operator.decide.pool import Pool
from windlass.operator.kinds.base import Condition
from windlass.operator.kinds.gpu_stack import Current, GPUStackSpec, GPUStackStatus
from windlass.operator.kinds.reasons import Reason
from windlass.operator.observed import Invalid
from windlass.operator.writes import PutStatus

SHOWN_NODES = 5


def current(pool: Pool) -> Current:
    """As written. Of a stack that has no status yet, as its nodes have it, else as the spec says: later only a
    FleetChange moves it, or an edit of the spec would change every node at once."""
    known, spec = pool.stack.status, pool.stack.spec
    if known.conditions:
        return known.current
    revisions = Counter(node.labels.get(DRIVER_REVISION_LABEL, "") for node in pool.nodes.values())
    del revisions[""]
    driver = min(revisions, key=lambda value: (-revisions[value], value)) if revisions else spec.driver.version
    return Current(driver=driver, mig=spec.mig.config)


def put_stack_status(pool: Pool, breaker: str) -> None:
    waiting = [name for name, status in pool.statuses.items() if status.phase != "Ready"]
    status = GPUStackStatus(
        current=pool.current,
        nodes=len(pool.nodes),
        ready=len(pool.nodes) - len(waiting),
        unavailable=sum(bool(pool.why_unavailable(name)) for name in pool.nodes),
        max_unavailable=pool.budget.limit,
        change=next((change.name for change in pool.changes if change.is_unfinished), ""),
        breaker=breaker,
        observed_generation=pool.stack.metadata.generation,
        conditions=(_readiness(pool, waiting), _synchrony(pool)),
    )
    if status != pool.stack.status:
        pool.writes.append(PutStatus("GPUStack", pool.stack.name, pool.stack.metadata.resource_version, status))


def refused_stack(invalid: Invalid, now: int) -> PutStatus | None:
    """Says why nothing is done for a stack whose spec can't be understood; None if that is written already."""
    words = f"nothing is done for its nodes: {invalid.message}"
    ready = _condition(invalid.status, "Ready", Reason.InvalidSpec, words, invalid.generation, now, is_true=False)
    others = tuple(known for known in invalid.status.conditions if known.type != ready.type)
    if ready in invalid.status.conditions:
        return None
    status = GPUStackStatus(
        current=invalid.status.current,
        nodes=invalid.status.nodes,
        ready=invalid.status.ready,
        unavailable=invalid.status.unavailable,
        max_unavailable=invalid.status.max_unavailable,
        change=invalid.status.change,
        breaker=invalid.status.breaker,
        observed_generation=invalid.generation,
        conditions=(ready, *others),
    )
    return PutStatus("GPUStack", invalid.name, invalid.version, status)


def _readiness(pool: Pool, waiting: list[str]) -> Condition:
    more = " …" if len(waiting) > SHOWN_NODES else ""
    message = f"not ready: {', '.join(waiting[:SHOWN_NODES])}{more}" if waiting else ""
    reason = "NodesNotReady" if waiting else "AllReady"
    return _pool_condition(pool, "Ready", reason, message, is_true=not waiting)


def _synchrony(pool: Pool) -> Condition:
    """Where the spec asks for nothing, what runs is right."""
    differs = []
    for component in components.COMPONENTS_OF_STACK:
        asked, runs = _asked(pool.stack.spec, component), components.current_value(pool.current, component)
        if asked and asked != runs:
            differs.append(f"{component} {runs or 'none'} (spec: {asked})")
    if not differs:
        return _pool_condition(pool, "InSync", "SpecRuns", "the nodes run what the spec says", is_true=True)
    message = f"the nodes run {', '.join(differs)}: start a FleetChange, or write it into the spec"
    return _pool_condition(pool, "InSync", "SpecDiffers", message, is_true=False)


def _asked(spec: GPUStackSpec, component: str) -> str:
    return spec.driver.version if component == "driver" else spec.mig.config


def _pool_condition(pool: Pool, kind: str, reason: str, message: str, *, is_true: bool) -> Condition:
    stack = pool.stack
    return _condition(stack.status, kind, reason, message, stack.metadata.generation, pool.now, is_true=is_true)


def _condition(
    status: GPUStackStatus, kind: str, reason: str, message: str, generation: int, now: int, *, is_true: bool
) -> Condition:
    state = "True" if is_true else "False"
    known = next((known for known in status.conditions if known.type == kind and known.status == state), None)
    return Condition(
        type=kind,
        status=state,
        reason=str(reason),
        message=message,
        last_transition_time=known.last_transition_time if known is not None else format_timestamp(now),
        observed_generation=generation,
    )
